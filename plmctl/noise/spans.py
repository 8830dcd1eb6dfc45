"""Spans of tokens or words: SpanBERT's sampler, an exact sampler, and masking by span."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import HALF, Draws, below
from plmctl.core.parts import base_of, part_of
from plmctl.noise.groups import Lengths
from plmctl.noise.masking import (
    MaskOrReplace,
    NoiseBudget,
    Select,
    Shuffled,
    Spans,
    expand_runs,
    find_document_begins,
    sum_before,
)
from plmctl.noise.units import Units, find_counted, find_units
from plmctl.text.vocab import Vocab


@base_of("sampler")
class Sampler:
    """Chooses positions for spans of given lengths in documents."""

    def __call__(
        self, rows: Rows, units: Units, budget: NoiseBudget, lengths: Lengths, draws: Draws
    ) -> np.ndarray:
        """The slots [k] (flattened) that the spans cover.

        Args:
            rows: the rows.
            units: their tokens or words.
            budget: tokens to be covered.
            lengths: draws the length of a span, in units.
            draws: random numbers.
        """
        raise NotImplementedError(type(self).__name__)


class RandomSpans(Select):
    """Spans whose lengths in `words` (else in tokens) have the given shares; neighbours that
    touch count as one span.
    """

    def __init__(
        self,
        *,
        vocab: Vocab,
        budget: NoiseBudget,
        shares: np.ndarray,
        words: bool,
        sampler: Sampler,
    ) -> None:
        self.vocab, self.budget, self.words, self.sampler = vocab, budget, words, sampler
        self.lengths = Lengths(shares)
        self.reads = frozenset({"input"} | ({"tracks.word_start"} if words else set()))

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        units = find_units(rows, self.vocab, words=self.words)
        chosen = np.zeros(len(units.ordinary), bool)
        chosen[self.sampler(rows, units, self.budget, self.lengths, draws)] = True
        return join_runs(rows, chosen)


def join_runs(rows: Rows, chosen: np.ndarray) -> Spans:
    """The runs of `chosen [n*T]` slots, each inside one row and document, in the order of the
    rows.
    """
    seq = rows.seqs[rows.input]
    width = seq.ids.shape[1]
    slot = np.flatnonzero(chosen)
    opens = np.ones(len(slot), bool)
    opens[1:] = np.diff(slot) > 1
    opens |= slot % width == 0
    if "document" in seq.tracks:
        opens |= find_document_begins(seq.tracks["document"]).ravel()[slot]
    first = np.flatnonzero(opens)
    row, start = np.divmod(slot[first], width)
    return Spans(row, start, np.diff(first, append=len(slot)))


def share_budget(
    rows: Rows, units: Units, budget: NoiseBudget, draws: Draws
) -> tuple[np.ndarray, np.ndarray]:
    """(first slot, tokens to be covered) of each document, never more than it has."""
    first, share = budget.of_documents(rows, draws, find_counted(rows, units, budget))
    before = np.append(0, np.cumsum(units.ordinary))
    return first, np.minimum(share, np.diff(before[np.append(first, len(units.ordinary))]))


@part_of("sampler")
class Anchored(Sampler):
    """SpanBERT's sampler: spans from random anchors until the budget is covered
    (pretraining/fairseq/data/masking.py).

    A length and an anchor token are drawn; if the anchor is covered already, both are drawn again.
    The span begins with the anchor's unit and covers as many units as the length says, covered ones
    included. It ends at the end of the stretch at the latest; the last span ends where the budget
    is used up, so it may cut a word. With a budget of 5 of 10 tokens:

        tokens                0 1 2 3 4 5 6 7 8 9
        length 3, anchor 4    . . . . x x x . . .     3 covered
        length 2, anchor 5                            5 is covered: drawn again
        length 4, anchor 2    . . x x x x x . . .     runs into the first span: 5 covered, done
    """

    SPARE = 1.2  # draws at once, for each one that would be enough if no two spans met

    def __call__(
        self, rows: Rows, units: Units, budget: NoiseBudget, lengths: Lengths, draws: Draws
    ) -> np.ndarray:
        first, share = share_budget(rows, units, budget, draws)
        end = np.append(first[1:], len(units.ordinary))
        # tokens of a span, about
        tokens = lengths.mean * len(units.of_slot) / max(1, len(units.stretch))
        covered, drawn = [], 3 + (self.SPARE * share / tokens).astype(np.int64)
        scratch, open_ = np.zeros(len(units.ordinary), np.int32), np.flatnonzero(share > 0)
        while len(open_):
            slot, document = self._cover(
                rows, units, lengths, draws, first[open_], end[open_], drawn[open_], scratch
            )
            count = np.bincount(document, minlength=len(open_))
            full = count >= share[open_]
            covered.append(
                slot[
                    np.repeat(full, count)
                    & (expand_runs(np.zeros_like(count), count) < np.repeat(share[open_], count))
                ]
            )
            open_ = open_[~full]
            drawn[open_] *= 2  # the same draws again, and as many more
        return np.concatenate(covered) if covered else np.zeros(0, np.int64)

    def _cover(
        self,
        rows: Rows,
        units: Units,
        lengths: Lengths,
        draws: Draws,
        first: np.ndarray,
        end: np.ndarray,
        drawn: np.ndarray,
        scratch: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(slot, document) of all tokens that the first `drawn` spans of each document cover, in
        the order in which they are covered.
        """
        width = rows.seqs[rows.input].ids.shape[1]
        document = np.repeat(np.arange(len(first)), drawn)
        row, column = np.divmod(first, width)
        word = draws.words_at(
            rows.key,
            "span",
            row[document],
            column[document] + expand_runs(np.zeros_like(drawn), drawn) * width,
        )
        anchor = first[document] + below(word.astype(np.uint32), (end - first)[document])
        unit = units.of_slot[anchor].astype(np.int64)
        begin, stop = units.start[unit], units.start[units.stop(unit, lengths(word >> HALF))]
        holder = place_spans(anchor, begin, np.where(units.ordinary[anchor], stop, begin), scratch)
        good = np.flatnonzero(holder[anchor] == np.arange(len(anchor)))
        size = (stop - begin)[good]
        slot, who = expand_runs(begin[good], size), np.repeat(good, size)
        new = holder[slot] == who
        return slot[new], document[who[new]]


def place_spans(
    anchor: np.ndarray, begin: np.ndarray, end: np.ndarray, scratch: np.ndarray
) -> np.ndarray:
    """The span that holds each slot, if each span in turn is taken unless its anchor is covered
    already.

    Args:
        anchor, begin, end: [k] slots of the spans `begin .. end - 1`.
        scratch: [slots] int32, zeros to work in.

    Returns:
        [slots] the number of the first taken span that covers the slot, k if none; so span k is
            taken if its anchor has the number k.

    Rounds replace a loop. A span is taken as soon as no undecided span before it covers its anchor.
    It is refused as soon as a taken one before it does.
    """
    holder = np.full(len(scratch), len(anchor), np.int32)
    open_ = np.flatnonzero(end > begin)
    while len(open_):
        size = (end - begin)[open_]
        slot, who = expand_runs(begin[open_], size)[::-1], np.repeat(open_, size)[::-1]
        scratch[slot] = who  # the earliest undecided span comes last, so its number stays
        mine = scratch[anchor[open_]] == open_
        kept = np.repeat(mine, size)[::-1]
        slot, who = slot[kept], who[kept]
        holder[slot] = np.minimum(holder[slot], who)
        open_ = open_[~mine]
        open_ = open_[holder[anchor[open_]] > open_]
    return holder


@part_of("sampler")
class Segmented(Sampler):
    """An exact sampler: no two spans touch, so each has its drawn length, and the budget holds in
    tokens.

    Lengths are drawn until they sum to as many units as the budget has tokens; all arrangements
    with at least one unit between two spans are equally likely, and one is drawn; then spans are
    taken in random order until the budget is used up, the last one cut to it. If too few units
    remain between them, the last spans are joined. A special token inside a span divides it. For 8
    words, budget 4, and drawn lengths 3 and 1:

        words that stay       4 of 8, so there are 5 gaps: before, between and after them
        gaps drawn            1 and 3 (different gaps, so spans never touch)
        words                 s [3 words] s s [1 word] s
    """

    def __call__(
        self, rows: Rows, units: Units, budget: NoiseBudget, lengths: Lengths, draws: Draws
    ) -> np.ndarray:
        first, share = share_budget(rows, units, budget, draws)
        unit = np.flatnonzero(units.begins & units.ordinary)  # slots where ordinary units begin
        offset = np.searchsorted(unit, first)
        total = np.diff(offset, append=len(unit))
        masked_units = np.minimum(share, total)
        document, size = self._sizes(
            rows, lengths, draws, first, masked_units, total - masked_units
        )
        spans = np.bincount(document, minlength=len(first))
        gap = self._draw_gaps(
            rows,
            draws,
            unit[expand_runs(offset, np.where(spans > 0, total - masked_units + 1, 0))],
            first,
            spans,
        )
        ordinal = np.searchsorted(unit, gap) + sum_before(size, spans)
        word = draws.words_at(rows.key, "turn", *np.divmod(gap, rows.seqs[rows.input].ids.shape[1]))
        turn = np.argsort((document.astype(np.uint64) << HALF) | (word >> HALF))
        covered = units.of_slot[unit[expand_runs(ordinal[turn], size[turn])]].astype(np.int64)
        tokens = units.length(covered, covered + 1)
        count = np.bincount(np.repeat(document, size[turn]), tokens, minlength=len(first)).astype(
            np.int64
        )
        # `turn` leaves documents in their order
        kept = expand_runs(np.zeros_like(count), count) < np.repeat(share, count)
        return units.slots(covered, covered + 1)[kept]

    @staticmethod
    def _sizes(
        rows: Rows,
        lengths: Lengths,
        draws: Draws,
        first: np.ndarray,
        share: np.ndarray,
        others: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(document, units) of each span, in order; `others` units of the document stay."""
        width = rows.seqs[rows.input].ids.shape[1]
        document = np.repeat(np.arange(len(first)), share)
        number = expand_runs(np.zeros_like(share), share)
        row, column = np.divmod(first[document], width)
        size = lengths(draws.words_at(rows.key, "length", row, column + number * width) >> HALF)
        left = share[document] - sum_before(size, share)
        # no gap is left for another span
        size = np.where(number == others[document], left, np.minimum(size, left))
        kept = (left > 0) & (number <= others[document])
        return document[kept], size[kept]

    @staticmethod
    def _draw_gaps(
        rows: Rows, draws: Draws, slots: np.ndarray, first: np.ndarray, spans: np.ndarray
    ) -> np.ndarray:
        """`spans` of the `slots` of each document, sorted; every set of that size is equally
        likely.
        """
        excluded = np.full(rows.seqs[rows.input].ids.shape, ~np.uint32(0))
        excluded.ravel()[slots] = 0
        chosen, _ = Shuffled(rows, draws, excluded).gather(expand_runs(first, spans))
        return np.sort(chosen)


class MaskOrReplaceSpan(MaskOrReplace):
    """One random decision for a whole span: all its tokens become the mask, or each a random token,
    or all stay (SpanBERT, sec. 3.1).
    """

    writes = frozenset({"targets.mlm", "spans.chosen"})

    def __call__(self, rows: Rows, spans: Spans, draws: Draws) -> Rows:
        lot = draws.words_at(rows.key, "span", spans.row, spans.start) >> HALF
        noised = self.show(rows, spans, draws, np.repeat(lot, spans.length))
        return replace(noised, spans={**noised.spans, "chosen": np.stack(spans, 1)})
