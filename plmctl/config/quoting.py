"""Quotes for Hydra's grammar: paths and foreign letters on a command line are values, never
grammar.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.config.keys import is_path, is_written
from plmctl.core.errors import UsageError
from plmctl.core.spelling import is_literal, quote_value, spell
from plmctl.storage.settings_file import DEPTH

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
# the functions of Hydra's sweep grammar
FUNCTION = re.compile(r"(choice|glob|range|interval|sort|shuffle|tag)\(.*\)", re.DOTALL)


def refuse_nested(word: str) -> None:
    """UsageError for brackets deeper than any setting: grammars call themselves for each."""
    depth = 0
    for letter in word:
        depth += (letter in "[{(") - (letter in "]})")
        if depth > DEPTH:
            raise UsageError(f"{word[:40]}...: nested too deeply, over {DEPTH} levels")


def quote(text: str, *, sweep: bool = False) -> str:
    """The override with its value in quotes if it is a path, or has letters that Hydra's grammar
    lacks (Chinese column names).

    So no letter of a file name is grammar; commas sweep only with `sweep`, and not where a command
    writes. In a list of overrides, [size=tiny,seed=1], each is, in a mapping of such lists, too.
    """
    key, equals, value = text.partition("=")
    sweep = sweep and not is_written(key.lstrip("+~"))
    if is_literal(key) and value != "null":
        return f"{key}={quote_value(value)}"
    refuse_nested(text)
    if is_path(key.lstrip("+~")) and re.fullmatch(r"\{\s*\w+\s*:.*\}", value, re.DOTALL):
        return f"{key}={_quote_values(value)}"
    if value[:1] in ("[", "{") and (inner := _overrides(value)) != value:
        return f"{key}={inner}"
    foreign = not value.isascii() and value[0] not in "{$"
    if (
        not equals
        or not (foreign or is_path(key.lstrip("+~")))
        or value in ("", "null")
        or _in_quotes(value)
    ):
        return text
    if sweep and FUNCTION.fullmatch(value):
        return text
    if os.path.exists(value):
        return f"{key}={quote_value(value)}"
    listed = "," in value or not is_written(key.lstrip("+~"))  # a list of one is a list, too
    if listed and value.startswith("[") and value.endswith("]"):
        if not is_path(key.lstrip("+~")):
            return f"{key}={_inside(value)}"
        return f"{key}=[{_each(split_values(value[1:-1]))}]"
    return f"{key}={_each(split_values(value) if sweep else [value])}"


def _each(parts: Sequence[str]) -> str:
    return ",".join(
        part if _in_quotes(part) else quote_value(part) for part in map(str.strip, parts)
    )


def _quote_values(value: str) -> str:
    """A mapping with quotes around each value: {train:'a.tsv',dev:'b.tsv'}."""
    pairs = [_divide(part) for part in split_values(value[1:-1])]
    return f"{{{','.join(f'{_name(name)}:{_each([inner])}' for name, _, inner in pairs)}}}"


def _overrides(value: str) -> str:
    """`value` with quotes around each override in its lists of them, which stand in mappings,
    too: {name: [size=tiny]}; and around each foreign text in a mapping.
    """
    if re.fullmatch(r"\[\s*['\"]?[\w.@/+~]+=.*\]", value, re.DOTALL):
        parts = split_values(value[1:-1])  # a word without these signs is as it stands
        return f"[{','.join(_each([part]) if re.search('[=~]', part) else part for part in parts)}]"
    if not re.fullmatch(r"\{.*\}", value, re.DOTALL):
        return value
    pairs = [_divide(part) for part in split_values(value[1:-1])]
    return (
        "{"
        + ",".join(f"{_name(name)}{colon}{_inside(inner.strip())}" for name, colon, inner in pairs)
        + "}"
    )


def _inside(value: str) -> str:
    """A value of a mapping, its foreign texts in quotes."""
    if value.isascii() or _in_quotes(value) or value[0] in "${":
        return _overrides(value)
    if not re.fullmatch(r"\[.*\]", value, re.DOTALL):
        return quote_value(value)
    whole = _overrides(value)
    return f"[{','.join(map(_inside, split_values(value[1:-1])))}]" if whole == value else whole


def _divide(pair: str) -> tuple[str, str, str]:
    """`name: value` at its colon; a name in quotes may have others."""
    pair = pair.strip()
    quoted = _QUOTED.match(pair)
    end = quoted.end() if quoted and pair[quoted.end() :].lstrip().startswith(":") else 0
    name, colon, value = pair[end:].partition(":")
    return pair[:end] + name, colon, value


def _name(text: str) -> str:
    """A name of a mapping with its letters as numbers where the grammar has no such names."""
    bare = text.strip()
    if not _in_quotes(bare):
        return text if text.isascii() else re.sub(r"[^\x00-\x7f]", _number, bare)
    # backslashes before a quote, or at the end, come in pairs; the one for the quote is alone
    halved = re.compile(rf"(\\+)(?={bare[0]}|\Z)")
    name = halved.sub(lambda found: found[1][: len(found[1]) // 2], bare[1:-1])
    plain = spell(name) == name and re.fullmatch(r"[A-Za-z_][\w-]*", name, re.ASCII)
    return name if plain else re.sub(r"(?s).", _number, name) or "%u%"


def _number(letter: re.Match[str]) -> str:
    return f"%u{ord(letter[0]):x}%"


def read_names(settings: Any) -> Any:
    """Composed settings with the names of their mappings as `quote` was given them."""
    if isinstance(settings, Mapping):
        return {read_name(name): read_names(inner) for name, inner in settings.items()}
    return [read_names(inner) for inner in settings] if isinstance(settings, list) else settings


def read_name(name: Any) -> Any:
    """A name, or a text with names, as `quote` was given them."""
    if not isinstance(name, str) or "%u" not in name:
        return name
    return re.sub(r"%u([0-9a-f]*)%", lambda each: each[1] and chr(int(each[1], 16)), name)


def unquote(text: str) -> str:
    """The text in a value of one pair of quotes; another value as it is."""
    return re.sub(r"\\(['\"])", r"\1", text[1:-1]) if _in_quotes(text) else text


def _in_quotes(text: str) -> bool:
    return bool(_QUOTED.fullmatch(text))


def split_values(text: str) -> list[str]:
    """`text` at its commas, but not at those inside quotes, brackets or braces."""
    parts, depth, place = [""], 0, 0
    while place < len(text):
        # a quote inside a word is a letter of a file name
        begins = parts[-1].strip()[-1:] in ("", ":", "[", "{", ",")
        quoted = _QUOTED.match(text, place) if begins else None
        letters = quoted[0] if quoted else text[place]
        depth += (letters in "[{(") - (letters in "]})")
        if letters == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letters
        place += len(letters)
    return [part.strip() for part in parts]
