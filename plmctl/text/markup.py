"""Markup in texts: how many of them are written in HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable

from plmctl.core.spelling import spell_setting, spell_word
from plmctl.text.letters import LOOKED

MANY = 0.05  # share of such documents from which on a warning is printed
# tags that other markup does not have, as <s> and <label>
TAG = re.compile(
    r"</?(?:a|abbr|article|aside|b|blockquote|body|br|button|center|code|dd|div|dl|dt|em|figcaption"
    r"|figure|font|footer|form|h[1-6]|head|header|hr|html|i|iframe|img|input|li|link|main|meta|nav"
    r"|noscript|ol|p|pre|rp|rt|ruby|script|section|small|span|strike|strong|style|sub|sup|svg|table"
    r"|tbody|td|textarea|tfoot|th|thead|title|tr|tt|u|ul|wbr)(?:\s[^<>]*)?/?>|<!--|<!doctype\s",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"&(?:nbsp|amp|lt|gt|quot|#\d{2,5});")
_APART = 2000  # characters: with fewer tags than one in so many a text is about HTML, not in it


def is_html(text: str) -> bool:
    """Whether a text has tags or character references of HTML all over."""
    found = len(TAG.findall(text)) + len(_REFERENCE.findall(text))
    return found * _APART >= len(text) > 0


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
        field: The field of its rows that holds the text.
    """
    named = [] if field == "text" else [spell_setting("field", field)]
    words = ["plmctl data filter", spell_word(path), *named, "'rule=[html]' out=plain"]
    return " ".join(words)
