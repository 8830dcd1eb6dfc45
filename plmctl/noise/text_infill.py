"""Text infilling (Lewis et al., 2020): one mask replaces each span, which may be empty; the model
restores the text.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import HALF, Draws, below
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.base import Denoising, find_mask, split_source
from plmctl.noise.groups import Lengths
from plmctl.noise.masking import NoiseBudget, Shuffled, expand_runs, sum_before
from plmctl.noise.moves import make_movable, move_tokens
from plmctl.noise.units import Units, find_units
from plmctl.text.vocab import Vocab

SELECTIONS = ("published", "exact")


@part_of("noise")
class TextInfill(Denoising):
    """Span lengths ~ Poisson(mean_length) until `ceil(rate * words)` words are covered; one mask
    replaces each span, or is inserted for length 0.

    `selection="published"`: the length of the last span is cut to the budget; spans begin at
    distinct random words of the document and may run into each other (fairseq,
    denoising_dataset.py, add_whole_word_mask and add_insertion_noise). `selection="exact"`: the
    spans never touch, so that the budget holds; all such arrangements are equally likely.
    `whole_words=False` counts tokens instead of words. (Lewis et al., 2020, arXiv:1910.13461, sec.
    2.2 and 5.1.)
    Differs: no span crosses a special token; a mask for which the row has no room is left out.
    """

    def __init__(
        self,
        *,
        vocab: Vocab,
        rate: float,
        mean_length: float,
        whole_words: bool = True,
        selection: str = "published",
    ) -> None:
        mask = find_mask(vocab, "text_infill")
        if not 0 < mean_length <= 32:
            allowed = "0 < mean_length <= 32, the mean of the Poisson distribution"
            raise ConfigError("noise.mean_length", mean_length, allowed)
        if selection not in SELECTIONS:
            raise ConfigError("noise.selection", selection, f"one of {', '.join(SELECTIONS)}")
        self.vocab = make_movable(vocab)
        self.mask = mask
        self.mean = mean_length
        self.whole_words = whole_words
        self.budget = NoiseBudget(
            rate=rate, max_predictions=None, selection="ceiling", count_specials=False
        )
        self.lengths = Lengths(tabulate_poisson(mean_length))
        self.cover = self._cover_exact if selection == "exact" else self._cover_published
        self.reads = frozenset({"input"} | ({"tracks.word_start"} if whole_words else set()))

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        rows = split_source(rows)
        units = find_units(rows, self.vocab, words=self.whole_words)
        seq, heads = rows.seqs[rows.input], units.begins & units.ordinary
        first, budget = self.budget.of_documents(rows, draws, heads.reshape(seq.ids.shape))
        document, size = self._lengths(rows, draws, first, budget, seq.ids.shape[1])
        extra, some = np.bincount(document[size == 0], minlength=len(first)), size > 0
        head, removed = self.cover(
            rows, draws, units, np.flatnonzero(heads), first, budget, document[some], size[some]
        )
        ids = seq.ids.copy()
        ids.ravel()[head] = self.mask
        keep = seq.real.copy()
        keep.ravel()[removed] = False
        rows = rows.with_seq(rows.input, replace(seq, ids=ids))
        return self._insert_masks(rows, draws, keep, units.ordinary, first, extra)

    @staticmethod
    def _cover_published(
        rows: Rows,
        draws: Draws,
        units: Units,
        word: np.ndarray,
        first: np.ndarray,
        budget: np.ndarray,
        document: np.ndarray,
        size: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(slots that show the mask, slots that are removed) of spans of `size` words in a
        `document`; `word`: where words begin.
        """
        excluded = np.full(rows.seqs[rows.input].ids.shape, ~np.uint32(0))
        excluded.ravel()[word] = 0
        start, _ = Shuffled(rows, draws, excluded).gather(
            expand_runs(first, np.bincount(document, minlength=len(first)))
        )
        unit = units.of_slot[start].astype(np.int64)
        removed = expand_runs(start + 1, units.length(unit, units.stop(unit, size)) - 1)
        return start, removed  # a mask inside another span is removed, too

    def _lengths(
        self, rows: Rows, draws: Draws, first: np.ndarray, budget: np.ndarray, width: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(document, words) of each span: as many as fill the budget, the last one cut to it."""
        # six standard deviations more than the budget needs on average
        count = np.where(budget > 0, (budget + 6 * np.sqrt(budget) + 20) / self.mean + 1, 0).astype(
            np.int64
        )
        document = np.repeat(np.arange(len(first)), count)
        number = expand_runs(np.zeros_like(count), count)
        row, column = np.divmod(first[document], width)
        word = draws.words_at(rows.key, "length", row, column + number * width)
        size = self.lengths((word >> HALF).astype(np.uint32)) - 1
        left = budget[document] - sum_before(size, count)
        return document[left > 0], np.minimum(size, left)[left > 0]

    @staticmethod
    def _cover_exact(
        rows: Rows,
        draws: Draws,
        units: Units,
        word: np.ndarray,
        first: np.ndarray,
        budget: np.ndarray,
        document: np.ndarray,
        size: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `_cover_published`, with each span in its own gap between the words that stay."""
        offset = np.searchsorted(word, first)
        others = np.diff(offset, append=len(word)) - budget
        document, size = _join(document, size, others + 1)
        spans = np.bincount(document, minlength=len(first))
        # the gap before the i-th word that stays is drawn as the i-th of all words
        excluded = np.full(rows.seqs[rows.input].ids.shape, ~np.uint32(0))
        excluded.ravel()[word[expand_runs(offset, np.where(spans > 0, others + 1, 0))]] = 0
        gap, _ = Shuffled(rows, draws, excluded).gather(expand_runs(first, spans))
        order = np.argsort(gap)
        size = size[order]
        unit = units.of_slot[
            word[expand_runs(np.searchsorted(word, gap[order]) + sum_before(size, spans), size)]
        ].astype(np.int64)
        opens = np.ones(len(unit), bool)
        # a special token divides a span
        opens[1:] = units.stretch[unit[1:]] != units.stretch[unit[:-1]]
        opens[np.cumsum(size) - size] = True
        covered, start = units.slots(unit, unit + 1), units.start[unit[opens]]
        return start, np.setdiff1d(covered, start, assume_unique=True)

    def _insert_masks(
        self,
        rows: Rows,
        draws: Draws,
        keep: np.ndarray,
        ordinary: np.ndarray,
        first: np.ndarray,
        extra: np.ndarray,
    ) -> Rows:
        """Keep the tokens of `keep` and insert `extra` masks into the gaps before, between and
        after each document's ordinary ones.
        """
        take = np.flatnonzero(keep)
        length = np.count_nonzero(keep, axis=1)
        ours = np.flatnonzero(ordinary[take])  # indices into take
        edges = np.searchsorted(take[ours], first)
        count = np.diff(edges, append=len(ours))
        width = keep.shape[1]
        document, gap = draw_gaps(rows, draws, first, count, np.where(count > 0, extra, 0), width)
        behind = gap == count[document]  # the last ordinary token, not before one
        before = ours[edges[document] + gap - behind] + behind
        row = first[document] // width
        room = (width - length)[row]
        fits = np.zeros(len(row), bool)
        fits[sum_before(np.ones_like(row), np.bincount(row, minlength=len(length))) < room] = True
        order = np.flatnonzero(fits)[np.argsort(before[fits], kind="stable")]
        before, row, beside = before[order], row[order], take[(before - behind)[order]]
        added = before + np.arange(len(before))
        return move_tokens(
            rows,
            np.insert(take, before, beside),
            length + np.bincount(row, minlength=len(length)),
            pad=self.vocab.pad,
            added=added,
            token=self.mask,
        )


def tabulate_poisson(mean: float) -> np.ndarray:
    """Probabilities of 0, 1, 2, ... up to the first one below 1e-7 beyond the mean (the public
    code's table).
    """
    shares = [math.exp(-mean)]
    while len(shares) < 128 and (shares[-1] >= 1e-7 or len(shares) <= mean):
        shares.append(shares[-1] * mean / len(shares))
    return np.array(shares)


def _join(
    document: np.ndarray, size: np.ndarray, most: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(document, size) of at most `most` spans of each document: the surplus is added to the last
    one.
    """
    number = np.arange(len(document)) - np.searchsorted(document, document)
    first = np.flatnonzero(number < most[document])
    return document[first], np.add.reduceat(size, first) if len(first) else size


def draw_gaps(
    rows: Rows, draws: Draws, first: np.ndarray, count: np.ndarray, extra: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """(document, gap in 0..count) of `extra` tokens inserted into each document of `count` tokens.

    Every set of positions in the longer text is equally likely. The i-th token goes to a random gap
    or, with probability i / (count + 1 + i), to the gap of an earlier one (Polya's urn).
    """
    document = np.repeat(np.arange(len(first)), extra)
    number = expand_runs(np.zeros_like(extra), extra)
    row, column = np.divmod(first[document], width)
    bits = draws.words_at(rows.key, "gap", row, column + number * width).astype(np.uint32)
    lot = below(bits, count[document] + 1 + number)
    origin = np.arange(len(lot))
    copies = np.flatnonzero(lot > count[document])
    origin[copies] += (lot - count[document] - 1 - number)[copies]
    while (origin[origin] != origin).any():
        origin = origin[origin]
    return document, lot[origin]
