"""Groups of tokens in random order, each taken completely or not at all: the sampler of BERT and
ALBERT.
"""

from __future__ import annotations

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import HALF, Draws
from plmctl.noise.masking import (
    NoiseBudget,
    Select,
    Shuffled,
    Spans,
    exclude,
    expand_runs,
    sum_before,
)
from plmctl.noise.units import Units, find_counted, find_units
from plmctl.text.vocab import Vocab


class RandomGroups(Select):
    """Runs of `n` whole words; n is drawn with `shares[n - 1]` for every word that a run may begin
    with.

    The words of a document are shuffled and visited one after the other. A run that would exceed
    the budget is shortened until it fits, and skipped if not even its first word fits; it is
    skipped too if any of its tokens is taken already; a run ends where its stretch of ordinary
    tokens ends. This goes on until the budget is used up or no word is left. With n = 1 or 2 and a
    budget of 4 tokens:

        words              New | York | trans form er | models | are | old
        are, n = 2         "are old"               2 tokens, taken
        models, n = 2      "models are"            "are" is taken already: skipped
        trans.., n = 1     "trans form er"         3 tokens, 2 are left: skipped
        New, n = 2         "New York"              2 tokens, taken; the budget is used up
    """

    reads = frozenset({"input", "tracks.word_start"})

    def __init__(self, *, vocab: Vocab, budget: NoiseBudget, shares: np.ndarray) -> None:
        self.vocab, self.budget = vocab, budget
        self.lengths = Lengths(shares)

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        units = find_units(rows, self.vocab, words=True)
        walk = Walk(rows, units, self.lengths, draws)
        counted = find_counted(rows, units, self.budget)
        walk.take(draws, walk.heads, *self.budget.of_documents(rows, draws, counted))
        return walk.spans()


class Lengths:
    """Numbers 1 .. N with given shares (normalised), from random bits."""

    def __init__(self, shares: np.ndarray) -> None:
        self.edges = (np.cumsum(shares / np.sum(shares))[:-1] * 2.0**32).astype(np.uint64)
        self.most = len(shares)
        self.mean = float((np.arange(1, self.most + 1) * shares).sum() / np.sum(shares))

    def __call__(self, bits: np.ndarray) -> np.ndarray:
        """int64 in 1 .. N from unsigned numbers below 2**32."""
        return np.searchsorted(self.edges, bits, side="right") + 1


class Walk:
    """Records which units are taken, and takes more.

    The result equals, choice by choice, that of visiting one run after the other. It is faster. In
    a document, the first runs without a token of an earlier run are taken at once, until one would
    exceed the budget. Only the few visits after it are made one by one, in all documents at once.
    """

    def __init__(self, rows: Rows, units: Units, lengths: Lengths, draws: Draws) -> None:
        self.rows, self.units, self.lengths, self.draws = rows, units, lengths, draws
        self.shape = rows.seqs[rows.input].ids.shape
        self.heads = units.begins & units.ordinary  # [n*T] where a run may begin
        self.taken = np.zeros(len(units.start) - 1, bool)  # by unit

    def spans(self) -> Spans:
        """The tokens of all taken units, each as a span of one token."""
        unit = np.flatnonzero(self.taken)
        row, column = np.divmod(self.units.slots(unit, unit + 1), self.shape[1])
        return Spans(row, column, np.ones_like(row))

    def take(
        self, draws: Draws, allowed: np.ndarray, first: np.ndarray, budget: np.ndarray
    ) -> np.ndarray:
        """Take runs that begin at the `allowed [n*T]` slots, up to each document's budget.

        Returns:
            [m] what is left of each budget.
        """
        order = Shuffled(self.rows, draws, exclude(~allowed).reshape(self.shape))
        end = np.append(first[1:], allowed.size)
        left, busy = budget.copy(), np.flatnonzero(budget > 0)
        if len(busy):
            slot, left[busy] = self._take_free_runs(order, first[busy], end[busy], budget[busy])
            left[busy] = self._take_one_by_one(order, slot, end[busy], left[busy])
        return left

    def _take_free_runs(
        self, order: Shuffled, first: np.ndarray, end: np.ndarray, budget: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(slot of the first visit that is left, budget that is left), each [m]."""
        count = np.minimum(np.ceil(budget / self.lengths.mean).astype(np.int64) + 1, end - first)
        offset = np.cumsum(count) - count
        slot, allowed = order.gather(expand_runs(first, count))
        unit, stop = self._run(slot)
        size = np.where(allowed, self.units.length(unit, stop), 0)
        free = (
            take_first_come(unit, np.where(allowed, stop, unit), len(self.taken), self.taken)
            if self._may_clash
            else allowed
        )
        gained = np.where(free, size, 0)
        number = expand_runs(np.zeros_like(count), count)
        too_many = sum_before(gained, count) + size > np.repeat(budget, count)
        looked = np.minimum.reduceat(np.where(too_many, number, np.repeat(count, count)), offset)
        free &= number < np.repeat(looked, count)
        self.taken[expand_runs(unit[free], (stop - unit)[free])] = True
        return first + looked, budget - np.add.reduceat(np.where(free, size, 0), offset)

    def _take_one_by_one(
        self, order: Shuffled, position: np.ndarray, end: np.ndarray, left: np.ndarray
    ) -> np.ndarray:
        left, busy = left.copy(), np.flatnonzero((left > 0) & (position < end))
        position = position.copy()
        while len(busy):
            slot, allowed = order.gather(position[busy])
            # excluded tokens come last: nothing is left there
            busy, slot = busy[allowed], slot[allowed]
            unit, stop = self._run(slot)
            for _ in range(self.lengths.most - 1):
                stop -= (self.units.length(unit, stop) > left[busy]) & (stop > unit + 1)
            good = self.units.length(unit, stop) <= left[busy]
            for step in range(self.lengths.most):
                good &= ~(self.taken[np.minimum(unit + step, stop - 1)])
            self.taken[expand_runs(unit[good], (stop - unit)[good])] = True
            left[busy] -= np.where(good, self.units.length(unit, stop), 0)
            position[busy] += 1
            busy = busy[(left[busy] > 0) & (position[busy] < end[busy])]
        return left

    @property
    def _may_clash(self) -> bool:
        return self.lengths.most > 1

    def _run(self, slot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(first unit, first unit after it) of the run of full length that begins at each slot."""
        unit = self.units.of_slot[slot].astype(np.int64)
        if not self._may_clash:
            return unit, unit + 1
        word = self.draws.words_at(
            self.rows.key, "words", *np.divmod(slot.astype(np.int64), self.shape[1])
        )
        return unit, self.units.stop(unit, self.lengths(word >> HALF))


def take_first_come(
    begin: np.ndarray, end: np.ndarray, size: int, taken: np.ndarray | None = None
) -> np.ndarray:
    """[k] bool: which of the runs `begin .. end - 1` over 0 .. size-1 are taken. Each in turn is
    taken unless part of it is `taken` already.

    Rounds replace a loop. A run is taken as soon as no undecided run before it shares a member with
    it. It is refused as soon as a taken run does. For the runs 0..2, 2..4, 4..6, 3..3 in this
    order:

        round 1   0..2 has no earlier run: taken. 2..4 waits for 0..2, 4..6 for 2..4, 3..3 for 2..4
        round 2   2..4 has member 2, which is taken: refused. 4..6 and 3..3 still wait
        round 3   4..6 and 3..3 have no undecided run before them: taken
    """
    blocked = np.zeros(size, bool) if taken is None else taken.copy()
    owner = np.zeros(size, np.int32)
    accepted = np.zeros(len(begin), bool)
    open_ = np.flatnonzero(end > begin)
    while len(open_):
        length = (end - begin)[open_]
        member = expand_runs(begin[open_], length)
        who = np.repeat(open_, length)
        offset = np.cumsum(length) - length
        refused = np.logical_or.reduceat(blocked[member], offset)
        # the earliest undecided run comes last, so its number stays
        owner[member[::-1]] = who[::-1]
        accepted_now = np.logical_and.reduceat(owner[member] == who, offset) & ~refused
        accepted[open_[accepted_now]] = True
        blocked[member[np.repeat(accepted_now, length)]] = True
        open_ = open_[~(accepted_now | refused)]
    return accepted
