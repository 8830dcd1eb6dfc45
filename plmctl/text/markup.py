"""Markup in texts: how many of them are written in HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable

from plmctl.core.spelling import spell_setting, spell_word
from plmctl.text.letters import LOOKED

MANY = 0.05  # share of such documents from which on a warning is printed
_TAG = re.compile(
    r"</?(?:a|b|i|p|br|hr|div|span|em|strong|ul|ol|li|dl|dt|dd|h[1-6]|img|html|head|body|meta|link"
    r"|title|style|script|table|tbody|tr|td|th|section|article|header|footer|nav|form|input|font"
    r"|center|blockquote|pre|code|sup|sub)(?:\s[^<>]*)?/?>|&(?:nbsp|amp|lt|gt|quot|#\d{2,5});",
    re.IGNORECASE,
)
_APART = 2000  # characters: with fewer tags than one in so many a text is about HTML, not in it


def is_html(text: str) -> bool:
    """Whether a text has tags or character references of HTML all over."""
    return len(_TAG.findall(text)) * _APART >= len(text) > 0


def measure_html(texts: Iterable[str]) -> float:
    """The share of the texts that are HTML, of about the first `LOOKED` characters."""
    found = count = size = 0
    for text in texts:
        text = text[:LOOKED]
        found, count, size = found + is_html(text), count + 1, size + len(text)
        if size >= LOOKED:
            break
    return found / max(1, count)


def spell_remedy(path: str, field: str) -> str:
    """The command that writes a text without its markup.

    Args:
        path: A file of it.
        field: The field of its rows that holds the text.
    """
    named = [] if field == "text" else [spell_setting("field", field)]
    words = ["plmctl data filter", spell_word(path), *named, "'rule=[html]' out=plain"]
    return " ".join(words)
