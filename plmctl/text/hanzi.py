"""Forms of Chinese characters: those of simplified or traditional text alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache


@cache
def find_form(character: str) -> str:
    """`simplified` for an ideograph of GB 2312 (1980) that Big5 (1984) lacks, `traditional` for the
    reverse; "" for one of both or of neither, and for other characters.
    """
    if not "一" <= character <= "鿿":
        return ""
    simplified, traditional = (_has(codec, character) for codec in ("gb2312", "big5"))
    if simplified == traditional:
        return ""
    return "simplified" if simplified else "traditional"


def count_forms(counts: Mapping[str, int]) -> Counter[str]:
    """{form: how often its characters occur}, the form "" for all others.

    Args:
        counts: {character: how often it occurs}.
    """
    found = Counter[str]()
    for character, count in counts.items():
        found[find_form(character)] += count
    return found


def _has(codec: str, character: str) -> bool:
    try:
        character.encode(codec)
    except UnicodeEncodeError:
        return False
    return True
