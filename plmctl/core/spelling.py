"""Settings as one types them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any


def spell(value: Any) -> str:
    """A value as an override writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{name}:{spell(inner)}' for name, inner in value.items())}}}"
    return f"[{','.join(map(spell, value))}]" if isinstance(value, (list, tuple)) else str(value)


def quote_value(text: str) -> str:
    """`text` in single quotes as Hydra reads them: only backslashes before a quote are special."""
    text = re.sub(r"(\\*)'", r"\1\1\\'", text)
    tail = len(text) - len(text.rstrip("\\"))
    return f"'{text}{chr(92) * tail}'"


def spell_word(text: str) -> str:
    """An override as one types it into a shell: in quotes where the shell would change it.

    A placeholder, <a or b>, is no shell's business: a user replaces it.
    """
    if re.fullmatch(r"[\w./,:+=@%^\[\]~-]*", text) or re.search(r"<[^<>]*>", text):
        return text
    easy = "'" in text and not re.search(r'["$`!\\]', text)
    return f'"{text}"' if easy else shlex.quote(text)
