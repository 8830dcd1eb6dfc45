"""FineWeb's rules of quality."""

from __future__ import annotations

from collections.abc import Iterator

from plmctl.cleaning.rule import Drop, TextRule, find_beyond
from plmctl.cleaning.rules.repetition import count_repeated
from plmctl.cleaning.text_view import STOPS, TextView
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Number, Rate


@part_of("rule")
class FineWebQuality(TextRule):
    """FineWeb's rules (Penedo et al., 2024, arXiv:2406.17557, sec. 3.5): most documents that break
    them are lists.

    Args:
        punctuated: The least share of lines that end with a sign of punctuation.
        short: The largest share of short lines.
        short_length: The number of characters of a short line.
        repeated: The largest share of characters in lines that stand before, too.
        breaks: The most line breaks for a word.
    """

    def __init__(
        self,
        *,
        punctuated: Rate | None = 0.12,
        short: Rate | None = 0.67,
        short_length: Count = 30,
        repeated: Rate | None = 0.01,
        breaks: Number | None = 0.3,
    ) -> None:
        self.punctuated, self.short, self.short_length = punctuated, short, short_length
        self.repeated, self.breaks = repeated, breaks

    def apply(self, view: TextView) -> TextView | Drop:
        if not view.lines:
            return Drop("no lines")
        return next(filter(None, self._look(view)), None) or view

    def _look(self, view: TextView) -> Iterator[Drop | None]:
        lines = view.lines
        ends = sum(line.endswith(tuple(STOPS)) for line in lines) / len(lines)
        yield find_beyond("lines without a final sign", ends, least=self.punctuated)
        short = sum(len(line) <= self.short_length for line in lines) / len(lines)
        yield find_beyond("short lines", short, most=self.short)
        size = len(view.text.replace("\n", ""))
        again = count_repeated(lines)[1] / size
        yield find_beyond("characters of repeated lines", again, most=self.repeated)
        breaks = view.text.count("\n") / max(1, len(view.words))
        yield find_beyond("line breaks", breaks, most=self.breaks)
