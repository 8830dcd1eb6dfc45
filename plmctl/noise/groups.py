"""Groups of tokens in random order, each taken whole if the budget has room for it: BERT's and
ALBERT's sampler.
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
from plmctl.noise.units import Units, find_units
from plmctl.text.vocab import Vocab


class RandomGroups(Select):
    """Runs of `n` whole words, n drawn with `shares[n - 1]` for every word that a run may begin
    with.

    The words of a document are shuffled and looked at one after the other. A run that would exceed
    the budget is shortened until it fits, skipped if not even its first word does; it is skipped
    too if any of its tokens is taken already; a run ends where its stretch of ordinary tokens ends.
    This goes on until the budget is used up or no word is left.
    """

    reads = frozenset({"input", "tracks.word_start"})

    def __init__(self, *, vocab: Vocab, budget: NoiseBudget, shares: np.ndarray) -> None:
        self.vocab, self.budget = vocab, budget
        self.lengths = Lengths(shares)

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        walk = Walk(rows, find_units(rows, self.vocab, words=True), self.lengths, draws)
        walk.take(draws, walk.heads, *self.budget.of_documents(rows, draws))
        return walk.spans()

    def capacity(self, length: int) -> int:
        return self.budget.capacity(length)


class Lengths:
    """Numbers 1 .. N with given shares (normalised), as a function of random bits."""

    def __init__(self, shares: np.ndarray) -> None:
        self.edges = (np.cumsum(shares / np.sum(shares))[:-1] * 2.0**32).astype(np.uint64)
        self.most = len(shares)
        self.mean = float((np.arange(1, self.most + 1) * shares).sum() / np.sum(shares))

    def __call__(self, bits: np.ndarray) -> np.ndarray:
        """int64 in 1 .. N from unsigned numbers below 2**32."""
        return np.searchsorted(self.edges, bits, side="right") + 1


class Walk:
    """Which units are taken so far, and the sampler that takes more.

    Equal, choice by choice, to looking at one run after the other. Runs that nothing hinders come
    first: of a document's first runs those are taken whose tokens no earlier taken run has, up to
    the first one that would exceed the budget; only the few looks from there on are taken one by
    one, in all documents at once.
    """

    def __init__(self, rows: Rows, found: Units, lengths: Lengths, draws: Draws) -> None:
        self.rows, self.units, self.lengths, self.draws = rows, found, lengths, draws
        self.shape = rows.seqs[rows.input].ids.shape
        self.heads = found.begins & found.ordinary  # [n*T] where a run may begin
        self.taken = np.zeros(len(found.start) - 1, bool)  # by unit

    def spans(self) -> Spans:
        unit = np.flatnonzero(self.taken)
        row, column = np.divmod(self.units.slots(unit, unit + 1), self.shape[1])
        return Spans(row, column, np.ones_like(row))

    def take(
        self, draws: Draws, allowed: np.ndarray, first: np.ndarray, budget: np.ndarray
    ) -> np.ndarray:
        """Take runs that begin at the `allowed [n*T]` slots up to each document's budget; what
        is left of it, [m].
        """
        order, end = (
            Shuffled(self.rows, draws, exclude(~allowed).reshape(self.shape)),
            np.append(first[1:], allowed.size),
        )
        left, busy = budget.copy(), np.flatnonzero(budget > 0)
        if len(busy):
            at, left[busy] = self._unhindered(order, first[busy], end[busy], budget[busy])
            left[busy] = self._one_by_one(order, at, end[busy], left[busy])
        return left

    def _unhindered(
        self, order: Shuffled, first: np.ndarray, end: np.ndarray, budget: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(slot of the first look that is left, budget that is left), each [m]."""
        count = np.minimum(np.ceil(budget / self.lengths.mean).astype(np.int64) + 1, end - first)
        offset = np.cumsum(count) - count
        place, allowed = order.at(expand_runs(first, count))
        unit, stop = self._run(place)
        size = np.where(allowed, self.units.length(unit, stop), 0)
        free = (
            first_come(unit, np.where(allowed, stop, unit), len(self.taken), self.taken)
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

    def _one_by_one(
        self, order: Shuffled, at: np.ndarray, end: np.ndarray, left: np.ndarray
    ) -> np.ndarray:
        left, busy = left.copy(), np.flatnonzero((left > 0) & (at < end))
        at = at.copy()
        while len(busy):
            place, allowed = order.at(at[busy])
            # excluded tokens come last: nothing is left there
            busy, place = busy[allowed], place[allowed]
            unit, stop = self._run(place)
            for _ in range(self.lengths.most - 1):
                stop -= (self.units.length(unit, stop) > left[busy]) & (stop > unit + 1)
            good = self.units.length(unit, stop) <= left[busy]
            for step in range(self.lengths.most):
                good &= ~(self.taken[np.minimum(unit + step, stop - 1)])
            self.taken[expand_runs(unit[good], (stop - unit)[good])] = True
            left[busy] -= np.where(good, self.units.length(unit, stop), 0)
            at[busy] += 1
            busy = busy[(left[busy] > 0) & (at[busy] < end[busy])]
        return left

    @property
    def _may_clash(self) -> bool:
        return self.lengths.most > 1

    def _run(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(first unit, first unit after it) of the run that begins at each place, at its full
        length.
        """
        unit = self.units.of_slot[place].astype(np.int64)
        if not self._may_clash:
            return unit, unit + 1
        word = self.draws.words_at(
            self.rows.key, "words", *np.divmod(place.astype(np.int64), self.shape[1])
        )
        return unit, self.units.stop(unit, self.lengths(word >> HALF))


def first_come(
    begin: np.ndarray, end: np.ndarray, size: int, taken: np.ndarray | None = None
) -> np.ndarray:
    """[k] bool: the runs `begin .. end - 1` over 0 .. size-1 that are taken if each in turn is,
    unless part of it is `taken`.

    Rounds instead of a loop: a run is taken as soon as no undecided run before it has any of its
    members, and falls as soon as a taken one has.
    """
    blocked = np.zeros(size, bool) if taken is None else taken.copy()
    owner = np.zeros(size, np.int32)
    accepted = np.zeros(len(begin), bool)
    open_ = np.flatnonzero(end > begin)
    while len(open_):
        length = (end - begin)[open_]
        member, who, offset = (
            expand_runs(begin[open_], length),
            np.repeat(open_, length),
            np.cumsum(length) - length,
        )
        fallen = np.logical_or.reduceat(blocked[member], offset)
        # the earliest undecided run comes last, so its number stays
        owner[member[::-1]] = who[::-1]
        mine = np.logical_and.reduceat(owner[member] == who, offset) & ~fallen
        accepted[open_[mine]] = True
        blocked[member[np.repeat(mine, length)]] = True
        open_ = open_[~(mine | fallen)]
    return accepted
