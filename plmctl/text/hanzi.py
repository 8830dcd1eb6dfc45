"""Forms of Chinese characters: those of simplified or traditional text alone, and those of text
that was decoded wrongly.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache

FORMS = {"simplified": "s2t", "traditional": "t2s"}  # the preset of OpenCC that changes each
LEAST = 0.01  # share of texts of a form from which it counts

_ANY = re.compile("[^\x00-\x7f\ufffd]{3,}")
_LOST = re.compile("锟斤拷|烫{3,}|屯{3,}")  # replacement characters, and unset memory, read as GBK
_READ = 0.6  # share of the bytes of a misread run from which ideographs come


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


def find_main_form(text: str) -> str:
    """The form of which a text has more characters; "" for none, or as many of both."""
    counts = {} if text.isascii() else count_forms(Counter(text))
    few, most = sorted(FORMS, key=lambda form: counts.get(form, 0))
    return most if counts.get(most, 0) > counts.get(few, 0) else ""


def describe_other_form(texts: Mapping[str, int], trained: Mapping[str, int]) -> str:
    """A remark on texts in a form in which hardly any training text was; "" for none.

    Args:
        texts: {form: how many of the texts have it for their main form}.
        trained: The same of the training texts.
    """
    known, read = sum(trained.get(form, 0) for form in FORMS), sum(map(texts.get, FORMS, [0, 0]))
    for form, preset in FORMS.items():
        own, seen = texts.get(form, 0), trained.get(form, 0)
        if known and own and own >= LEAST * read and seen < LEAST * known:
            return (
                f"{own:,} of {read:,} Chinese texts are {form}, and {seen:,} of {known:,} training"
                f" texts: convert them, for example with opencc -c {preset}"
            )
    return ""


def find_misread(text: str) -> list[str]:
    """The pieces of a text that are UTF-8 decoded as GBK, such as 鎴戞槸 for 我是, and 锟斤拷.

    A piece counts if its bytes in GB 18030 are UTF-8 of at least two usual ideographs.
    """
    pieces = (found[0] for found in _ANY.finditer(text))
    return [piece for piece in pieces if _LOST.search(piece) or _is_misread(piece)]


def _is_misread(piece: str) -> bool:
    try:
        raw = piece.encode("gb18030")
    except UnicodeEncodeError:
        return False
    usual = sum(map(_is_usual, raw.decode("utf-8", "ignore")))
    return usual > 1 and 3 * usual >= _READ * len(raw)


@cache
def _is_usual(character: str) -> bool:
    """Whether a character is an ideograph of GB 2312 or Big5."""
    return "一" <= character <= "鿿" and (_has("gb2312", character) or _has("big5", character))


def _has(codec: str, character: str) -> bool:
    try:
        character.encode(codec)
    except UnicodeEncodeError:
        return False
    return True
