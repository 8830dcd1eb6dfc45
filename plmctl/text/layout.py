"""The lines of a text file: a sentence, a paragraph, a piece of a paragraph with hard line breaks,
or a line of running text. In running text the end of a line is a token.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from plmctl.core.errors import ConfigError, nearest
from plmctl.text import sentences

RUNNING = "running"
KINDS = ("auto", "sentence", "paragraph", "wrapped", RUNNING)
_FINAL = re.compile(r"""[.?!:;…。！？；：]["'”’)\]」』）》]*$""")
_NARROWEST, _WIDEST = (40, 16), 120  # characters of a wrapped line: (of words, of Chinese)
_FIRST = re.compile(rf"\s*(?:[{sentences.CJK}]|[^\s{sentences.CJK}]+)")  # the beginning of a line
_PLAIN = re.compile(r"\w+")
_CHINESE = re.compile(f"[{sentences.CJK}。，、！？；：」』）》]")


@dataclass(frozen=True)
class TextLayout:
    """How one file is read: what a line is, how many blank lines end a document, and whether that
    was detected (`found`) or given.
    """

    lines: str
    gap: int = 1
    found: bool = False

    def settings(self) -> dict[str, Any]:
        """The fields as JSON, for the manifest."""
        return asdict(self)


def detect_layout(
    sample: Sequence[str], lines: str, *, blocks: bool, rows: bool = False
) -> TextLayout:
    """Decide the layout of a file from its first lines.

    Args:
        lines: a kind of `KINDS`; `auto` detects it.
        blocks: blank lines do not end the documents of this file.
        rows: the lines are those of texts in fields, which are joined only where `lines` says so.

    Where one blank line separates wrapped paragraphs and more separate chapters, two blank lines
    end a document.
    """
    if lines not in KINDS:
        raise ConfigError(
            "data.lines", lines, f"one of {', '.join(KINDS)}{nearest(str(lines), KINDS)}"
        )
    kind = _kind(sample, rows) if lines == "auto" else lines
    gap = 2 if kind == "wrapped" and not blocks and _has_chapters(sample) else 1
    return TextLayout(kind, gap, lines == "auto")


def is_indented(line: str) -> bool:
    """Whether white space at its begin may mean something, as it does in code and verse."""
    return line.startswith((" ", "\t"))


def unwrap(lines: Sequence[str]) -> str:
    """Join lines to one paragraph: by spaces, or directly between two Chinese characters. The
    first one keeps its indentation.
    """
    text = lines[0].rstrip()
    for line in map(str.strip, lines[1:]):
        glued = _CHINESE.match(text[-1:]) and _CHINESE.match(line[:1])
        text += line if glued else " " + line
    return text


def _kind(sample: Sequence[str], rows: bool) -> str:
    """Wrapped: a width was filled with words. Sentence: nearly every line is exactly one, and
    none is indented. All else keeps its lines.
    """
    lines = [line.strip() for line in sample if line.strip()]
    if len(lines) < 4:
        return "paragraph"
    if not rows and _is_wrapped(sample, lines):
        return "wrapped"
    if sum(map(is_indented, filter(str.strip, sample))) > 0.02 * len(lines):
        return "paragraph"
    final = sum(_FINAL.search(line) is not None for line in lines) / len(lines)
    first = lines[:500]
    single = sum(len(sentences.split(line)) == 1 for line in first) / len(first)
    return "sentence" if single > 0.9 and final > 0.8 else "paragraph"


def _is_wrapped(sample: Sequence[str], lines: Sequence[str]) -> bool:
    """Whether an editor has broken sentences at a width: hardly any line has had room for the first
    word of the next one.

    Titles, verse, code, lists and sentences without full stops end where their author wanted, with
    room for more. Tables, logs, and lines without spaces may have no room either: these are known
    by their columns, their lengths, or their first words.
    """
    chinese = _CHINESE.match(lines[0][:1]) is not None
    lengths = sorted(map(len, lines))
    widest = lengths[int(0.98 * (len(lengths) - 1))]
    indented = sum(map(is_indented, filter(str.strip, sample)))
    columns = sum("  " in line or "\t" in line for line in lines)
    words = sum(line.count(" ") + 1 for line in lines)
    if (
        not (_NARROWEST[chinese] <= widest <= _WIDEST)
        or max(indented / 3, columns) > 0.1 * len(lines)
        or (not chinese and words < 4 * len(lines))
    ):
        return False
    # positions inside of sentences where a line ends
    broken = [
        (line.rstrip(), following)
        for line, following in pairwise(sample)
        if line.strip()
        and following.strip()
        and not is_indented(following)
        and not _FINAL.search(line.rstrip())
    ]
    carried = sum(following[0].islower() for _, following in broken)
    full = sum(
        len(line) + len(_FIRST.match(following)[0]) >= widest  # type: ignore[index]
        for line, following in broken
    )
    return (
        len(broken) >= max(4, 0.3 * len(lines))
        and full > 0.8 * len(broken)
        and (chinese or (carried > 0.2 * len(lines) and not _are_records(lines, broken)))
    )


def _are_records(lines: Sequence[str], broken: Sequence[tuple[str, str]]) -> bool:
    """Whether lines are of one length, or begin with words that stand nowhere else, as in a log."""
    if max(Counter(map(len, lines)).values()) > 0.8 * len(lines):
        return True
    inside = {word for line in lines for word in _PLAIN.findall(line.partition(" ")[2].lower())}
    firsts = (_PLAIN.search(following.lower()) for _, following in broken)
    return sum(word is not None and word[0] in inside for word in firsts) < 0.4 * len(broken)


def _has_chapters(sample: Sequence[str]) -> bool:
    """Whether single blank lines and longer gaps both occur often: then the single ones only
    part paragraphs.
    """
    blanks = re.findall(r"\.(-+)(?=\.)", "".join("." if line.strip() else "-" for line in sample))
    single = sum(len(run) == 1 for run in blanks)
    return single >= 3 and len(blanks) - single >= 1 and single > len(blanks) / 2
