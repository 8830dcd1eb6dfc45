"""What a line of a text file is: a sentence, a paragraph, a piece of a paragraph with hard line
breaks, or a line of running text, whose end is a token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from plmctl.core.errors import ConfigError, nearest
from plmctl.text import sentences

RUNNING = "running"
KINDS = ("auto", "sentence", "paragraph", "wrapped", RUNNING)
_FINAL = re.compile(r"""[.?!:;…。！？；：]["'”’)\]」』）》]*$""")
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


def detect_layout(sample: Sequence[str], lines: str, *, blocks: bool) -> TextLayout:
    """Decide the layout of a file from its first lines.

    Args:
        sample: the first lines.
        lines: a kind of `KINDS`; `auto` detects it.
        blocks: blank lines do not end the documents of this file.

    Where one blank line separates wrapped paragraphs and more separate chapters, two blank lines
    end a document.
    """
    if lines not in KINDS:
        raise ConfigError(
            "data.lines", lines, f"one of {', '.join(KINDS)}{nearest(str(lines), KINDS)}"
        )
    kind = _kind([line.strip() for line in sample if line.strip()]) if lines == "auto" else lines
    gap = 2 if kind == "wrapped" and not blocks and _has_chapters(sample) else 1
    return TextLayout(kind, gap, lines == "auto")


def unwrap(lines: Sequence[str]) -> str:
    """Join lines to one paragraph: by spaces, or directly between two Chinese characters."""
    text = lines[0]
    for line in lines[1:]:
        glued = _CHINESE.match(text[-1:]) and _CHINESE.match(line[:1])
        text += line if glued else " " + line
    return text


def _kind(lines: list[str]) -> str:
    """Wrapped: full lines of like length that break inside sentences. Sentence: nearly every
    line is exactly one.
    """
    if len(lines) < 4:
        return "paragraph"
    lengths = sorted(len(line) for line in lines)
    widest = lengths[int(0.98 * (len(lengths) - 1))]
    final = sum(_FINAL.search(line) is not None for line in lines) / len(lines)
    carried = sum(
        1
        for line, following in pairwise(lines)
        if following[0].islower() and not _FINAL.search(line)
    )
    full = sum(length > 0.75 * widest for length in lengths) / len(lengths)
    if (
        widest <= 120
        and final < 0.6
        and full > 0.3
        and (carried / len(lines) > 0.2 or _CHINESE.match(lines[0][:1]))
    ):
        return "wrapped"
    first = lines[:500]
    single = sum(len(sentences.split(line)) == 1 for line in first) / len(first)
    return "sentence" if single > 0.9 and final > 0.8 else "paragraph"


def _has_chapters(sample: Sequence[str]) -> bool:
    """Whether single blank lines and longer gaps both occur often: then the single ones only
    part paragraphs.
    """
    blanks = re.findall(r"\.(-+)(?=\.)", "".join("." if line.strip() else "-" for line in sample))
    single = sum(len(run) == 1 for run in blanks)
    return single >= 3 and len(blanks) - single >= 1 and single > len(blanks) / 2
