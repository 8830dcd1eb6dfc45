"""The ends of sentences: a rule for English and one for Chinese, applied together to any text.

English: after `. ? !` with closing quotes or brackets, before white space and a capital letter, a
digit or an opening quote; not after an abbreviation or an initial. Chinese: after `。！？；…` with
closers, with or without white space; never after `，、：`. A line break always ends a sentence. The
pieces keep their leading white space, so joined they are the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# characters; a longer sentence is cut, or a book without full stops would be one sentence
LONGEST = 1 << 12
# the ranges that BERT isolates
CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
CHINESE = re.compile(f"[{CJK}]")  # one such character
_CLOSERS = "”’」』）》】〉\"')\\]"
_OPENERS = "“‘「『（《【〈\"'(["
_END = re.compile(rf"[\n.?!…。！？；][.?!…。！？；{_CLOSERS}]*")
_CHINESE = re.compile(r"[。！？；]")
_SPACE = re.compile(r".*\S(\s+)", re.DOTALL)  # the last white space after a word

# Abbreviations before a name or a number, hardly ever the last word of a sentence.
_ALWAYS = """
    mr mrs ms dr prof rev fr gen col maj capt lt cmdr sgt adm gov sen rep hon pres st ste mt ft
    messrs mme mlle vs cf e.g i.e viz al approx ca dept univ assn bros corp inc ltd vol ed eds trans
"""
_BEFORE_NUMBER = (
    "no nos p pp fig figs eq sec ch art op c r b d fl"
    " jan feb mar apr jun jul aug sep sept oct nov dec"
)
_NEVER_LAST, _NOT_BEFORE_NUMBERS = frozenset(_ALWAYS.split()), frozenset(_BEFORE_NUMBER.split())
_DOTTED = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")  # U.S, J.R.R; written without the last full stop
_DAYTIME = frozenset(("a.m", "p.m"))


def split(text: str) -> list[str]:
    """The sentences of `text`, without outer white space."""
    return [sentence for piece in pieces(text) if (sentence := piece.strip())]


def pieces(text: str) -> list[str]:
    """Sentences with the white space before them; joined, they are `text` exactly."""
    parts, start = [], 0
    for match in _END.finditer(text):
        end = match.start() if match[0][0] == "\n" else match.end()
        if end > start and not text[start:end].isspace() and _ends(text, match):
            parts.append(text[start:end])
            start = end
    rest = text[start:]
    if rest and rest.isspace() and parts:
        parts[-1] += rest
    elif rest:
        parts.append(rest)
    return [part for piece in parts for part in _shorten(piece)] if len(text) > LONGEST else parts


def _shorten(piece: str) -> Iterator[str]:
    """`piece` in parts of at most `LONGEST` characters, cut before white space where there is
    any.
    """
    start = 0
    while len(piece) - start > LONGEST:
        space = _SPACE.match(piece, start, start + LONGEST + 1)
        end = space.start(1) if space else start + LONGEST
        yield piece[start:end]
        start = end
    yield piece[start:]


def _ends(text: str, match: re.Match[str]) -> bool:
    mark, following = match[0], text[match.end() : match.end() + 40]
    if mark[0] == "\n" or _CHINESE.search(mark):
        return True
    # without a space only inside Chinese text: `好!我`, `……他`; not `3.14`, `wait…what`
    if not following[:1].isspace():
        return not following or (mark[0] in "?!…" and _ideographic(following[0]))
    following = following.lstrip()
    after = following.lstrip(_OPENERS)[:1]
    if (
        after
        and not (after.isupper() or after.isdigit() or _ideographic(after))
        and following[:1] not in "“‘「『\"'"
    ):
        return False
    return mark.rstrip(_CLOSERS) != "." or not _abbreviation(text, match.start(), after)


def _ideographic(character: str) -> bool:
    return character > "\u2e7f"


def _abbreviation(text: str, stop: int, after: str) -> bool:
    """Whether the full stop at `stop` belongs to an abbreviation, with `after` the first
    character that follows.
    """
    words = text[max(0, stop - 20) : stop].split()
    word = words[-1].lstrip(_OPENERS) if words else ""
    lower = word.lower()
    if lower in _NEVER_LAST or (len(word) == 1 and word.isupper() and word.isascii()):
        return True
    if lower in _NOT_BEFORE_NUMBERS and after.isdigit():
        return True
    return bool(_DOTTED.fullmatch(word)) and lower not in _DAYTIME
