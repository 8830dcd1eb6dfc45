"""Settings as one types them: a value in Hydra's grammar, and that as a word of a shell."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

# texts that the grammar reads as they stand; words apart by one space are one text
_PLAIN = re.compile(r"[\w/.][\w./:@%+-]*( [\w./:@%+-]+)*", re.ASCII)
# texts that it reads as something else: numbers, and words with a meaning
_MEANT = re.compile(r"[\d_.]+(e[+-]?[\d_]+)?|null|true|false|nan|inf", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"(?<=[=\[,])<[^<>'\"=]*>")


class Typed(str):
    """A value that is spelled already."""


def spell(value: Any) -> str:
    """A value as an override writes it: a text that is none to Hydra's grammar stands in quotes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{_name(name)}:{_inside(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_inside, value))}]"
    if isinstance(value, Typed) or not isinstance(value, (str, os.PathLike)):
        return str(value)
    text = os.fspath(value)
    plain = _PLAIN.fullmatch(text) and not _MEANT.fullmatch(text)
    return text if plain else quote_value(text)


def _inside(value: Any) -> str:
    """A value in a list or mapping, where one of several words is plainer in quotes."""
    several = isinstance(value, str) and " " in value and not isinstance(value, Typed)
    return quote_value(value) if several else spell(value)


def _name(name: Any) -> str:
    return quote_value(name) if isinstance(name, str) and ":" in name else spell(name)


def quote_value(text: str) -> str:
    """`text` in quotes as Hydra reads them: only backslashes before a quote are special.

    Double ones where a shell is to read single ones around the word.
    """
    mark = '"' if re.search(r"['$`!\\\\]", text) and '"' not in text else "'"
    text = re.sub(rf"(\\*){mark}", rf"\1\1\\{mark}", text)
    tail = len(text) - len(text.rstrip("\\"))
    return f"{mark}{text}{chr(92) * tail}{mark}"


def is_literal(key: str) -> bool:
    """Whether the value is a text as it stands, in which nothing is grammar and nothing is a
    list.
    """
    return key == "prompt"


def spell_setting(key: str, value: Any) -> str:
    """One setting as one types it into a shell, whatever its value is.

    Example:
        >>> spell_setting("data.field", "Message Body (HTML)")
        "data.field='Message Body (HTML)'" in double quotes, one word of a shell
    """
    return spell_word(f"{key}={value if is_literal(key) else spell(value)}")


def spell_word(text: str) -> str:
    """A word as one types it into a shell: in quotes where the shell would change it.

    A placeholder, <a or b>, is no shell's business where it is a whole value: a user replaces it.
    """
    plain = _PLACEHOLDER.sub("x", text)
    # zsh reads [ and ]; a word with a placeholder is spelled again when that has its name
    if re.fullmatch(r"[\w./,:+=@%^~-]+" if plain == text else r"[][\w./,:+=@%^~-]+", plain):
        return text
    if "'" in text and not re.search(r"[$`!\\]", text):
        return '"' + text.replace('"', '\\"') + '"'
    return shlex.quote(text)


def spell_line(*words: object) -> str:
    """A line of plmctl as one types it into a shell, from its words."""
    return " ".join(["plmctl", *(spell_word(str(word)) for word in words)])
