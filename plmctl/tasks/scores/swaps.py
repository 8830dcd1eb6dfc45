"""The one rule for the p-value of a difference between two systems on the same examples.

A swap exchanges the two answers to an example, or to a bundle of examples. If the systems were
equal, every choice of swaps would be as likely (Fisher, 1935; Noreen, 1989; Yeh, 2000). The p-value
is the share of choices with at least this difference, either way. It is exact where at most
`STATES` choices differ, and where a score is a mean of examples, whose sums can be counted
(`count_steps`). Else it is of `SWAPS` random choices, with the seed `SEED`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from plmctl.core.rounding import spell_p

SWAPS, SEED = 9_999, 0  # random choices: the smallest p-value is 1 / (SWAPS + 1)
SLOW = 999  # the same of a score that is computed anew from all examples
STATES = 1 << 16  # choices that differ, of which each is looked at
WORK = 1 << 29  # products for the chances of all sums on a grid
PARTS = 12  # a unit of a grid is the smallest step, or a part of it down to this one
EFFECTS = 1 << 12  # different swaps of which it is tried whether their effects add up
TRIED = 8  # random choices halfway to which the difference has to be half as far
ROOM = 1 << 20  # numbers of a table of choices that is made at once
WIDE = 64  # numbers of a choice at least, with those of which its score is made
EXACT = "exact"  # the way of a p-value that has counted all choices
ALONE = "not corrected"  # for other comparisons
EQUAL = 1e-9  # differences of scores below it are rounding


@dataclass(frozen=True)
class SwapTest:
    """A p-value by swaps.

    Args:
        p: The p-value, not corrected for other comparisons.
        swaps: The number of random choices; None: it is exact; 0: not known.
    """

    p: float
    swaps: int | None

    @classmethod
    def read(cls, record: Any) -> SwapTest:
        """The test by its record in result.json; earlier versions have the p-value alone."""
        return cls(**record) if isinstance(record, Mapping) else cls(record, 0)

    @property
    def way(self) -> str:
        """`exact` or `9,999 random swaps`; "" where it is not known."""
        return EXACT if self.swaps is None else f"{self.swaps:,} random swaps" * (self.swaps > 0)

    def spell(self, p: float | None = None) -> str:
        """`0.0123`, `< 0.0001` of an exact one, and `<= 0.0001` where no random choice has such a
        difference.

        Args:
            p: The p-value after a correction; None: as it is.
        """
        floor = self.swaps and self.p * (self.swaps + 1) < 1.5
        return spell_p(self.p if p is None else p, at_most=bool(floor))


@dataclass(frozen=True)
class Swaps:
    """The swaps that change something between two systems; those of the same effect are one group.

    Args:
        sizes: [P] the number of swaps in each group.
        seen: [P] the sum over a group of 1 or -1, as the answers stand.
        gap: [R, P] such sums to [R] differences of the scores.
        most: Random choices, where there are too many for all.
        states: Choices of which each may be looked at.
        adds: Whether it is tried that the effects of swaps add up.
    """

    sizes: np.ndarray
    seen: np.ndarray
    gap: Callable[[np.ndarray], np.ndarray]
    most: int = SWAPS
    states: int = STATES
    adds: bool = True

    def test(self) -> SwapTest:
        """The p-value by the rule of this module."""
        exact = self._count_states()
        exact = self._count_steps() if exact is None else exact
        if exact is not None:
            return SwapTest(min(1.0, max(exact, sys.float_info.min)), None)
        return SwapTest((1 + self._draw()) / (1 + self.most), self.most)

    def _count_states(self) -> float | None:
        """The share, with a look at each choice; None where there are too many."""
        shape = [size + 1 for size in self.sizes.tolist()]
        if math.prod(shape) > self.states:
            return None
        if not shape:
            return 1.0
        chances, found, least = [find_chances(size - 1) for size in shape], 0.0, self._least()
        for rows, start in split_draws(math.prod(shape), max(WIDE, len(shape))):
            made = np.unravel_index(np.arange(start, start + rows), shape)
            shares = np.prod([own[each] for own, each in zip(chances, made, strict=True)], axis=0)
            gaps = self.gap(self.sizes - 2 * np.stack(made, 1))
            found += float(shares[np.abs(gaps) >= least].sum())
        return found

    def _count_steps(self) -> float | None:
        """The share by `count_steps`; None where the effects of swaps do not add up."""
        size = len(self.sizes)
        if size > EFFECTS or not self.adds:
            return None
        rng = np.random.default_rng(SEED)
        tried = self.sizes - 2 * rng.binomial(self.sizes, 0.5, size=(TRIED, size))
        both = np.stack([tried, np.tile(self.seen, (TRIED, 1))])
        gaps = [self.gap(each) for each in (*both, both.mean(0))]
        if not np.allclose((gaps[0] + gaps[1]) / 2, gaps[2], rtol=EQUAL, atol=EQUAL):
            return None
        ones = (np.eye(rows, size, start) for rows, start in split_draws(size, max(WIDE, size)))
        steps = np.concatenate([self.gap(each) for each in ones])
        return count_steps(steps, self.sizes, self.seen)

    def _draw(self) -> int:
        """How many random choices have at least this difference."""
        rng, count, least = np.random.default_rng(SEED), 0, self._least()
        for rows, _ in split_draws(self.most, max(WIDE, len(self.sizes))):
            made = rng.binomial(self.sizes, 0.5, size=(rows, len(self.sizes)))
            count += int((np.abs(self.gap(self.sizes - 2 * made)) >= least).sum())
        return count

    def _least(self) -> float:
        return abs(float(self.gap(self.seen[None])[0])) - EQUAL


class SummedScore(NamedTuple):
    """A score that is a function of sums over examples.

    Args:
        table: [C, c] what each cell adds.
        cell: [m] the cell of each example.
        value: [R, c] sums to [R] scores.
    """

    table: np.ndarray
    cell: np.ndarray
    value: Callable[[np.ndarray], np.ndarray]

    def list_swaps(self, n: int) -> Swaps:
        """The swaps between n examples of one system and the n behind them of the other.

        The two have the totals a and b, and an example has `d = a_i - b_i`. Let t be the sum of all
        d, those of swapped examples with the other sign. Then the sums after swaps are
        `(a + b + t) / 2` and `(a + b - t) / 2`. So an example counts by its d up to the sign:
        neither the order of the examples nor that of the systems matters.
        """
        table, value = self.table, self.value
        total = np.bincount(self.cell, minlength=len(table)) @ table
        pairs, counts = np.unique(self.cell.reshape(2, n), axis=1, return_counts=True)
        moves = table[pairs[0]] - table[pairs[1]]
        some = (moves != 0).any(1)
        moves, counts = moves[some], counts[some]
        sign = np.sign(moves[np.arange(len(moves)), (moves != 0).argmax(1)])
        moves, group = np.unique(moves * sign[:, None], axis=0, return_inverse=True)
        sizes, seen = np.zeros(len(moves), dtype=np.int64), np.zeros(len(moves))
        np.add.at(sizes, group.reshape(-1), counts)
        np.add.at(seen, group.reshape(-1), counts * sign)

        def subtract(signs: np.ndarray) -> np.ndarray:
            moved = signs @ moves
            return value((total - moved) / 2) - value((total + moved) / 2)

        return Swaps(sizes, seen, subtract)


def correct(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's correction of p-values: the k-th smallest of m is multiplied by m - k + 1, never
    decreasing (Holm, 1979); None stays None.
    """
    known = sorted((p, index) for index, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    highest = 0.0
    for rank, (p, index) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        corrected[index] = highest
    return corrected


def count_steps(steps: np.ndarray, sizes: np.ndarray, seen: np.ndarray) -> float | None:
    """The share of choices with at least the difference `|sum seen steps|`, of swaps whose effects
    add up. It comes from the chance of each sum, all sums being multiples of one unit; None where
    no unit is found, or there are too many sums. With one size of steps it is the binomial (sign)
    test.

    Args:
        steps: [P] the effect of a swap of each group.
        sizes: [P] the number of swaps in each group.
        seen: [P] the sum of 1 or -1 over each group, as the answers stand.
    """
    some = np.abs(steps) > EQUAL * np.abs(steps).max(initial=0)
    if not some.any():
        return 1.0
    steps, sizes, seen = steps[some], sizes[some], seen[some]
    grid = find_grid(steps)
    if grid is None:
        return None
    units, group = np.unique(np.abs(grid), return_inverse=True)
    counts = np.bincount(group.reshape(-1), sizes).astype(np.int64)
    chances, work = np.ones(1), 0
    for unit, count in zip(units.tolist(), counts.tolist(), strict=True):
        work += (unit * count + 1) * len(chances)
        if work > WORK or unit * count + len(chances) > ROOM:
            return None
        chances = _spread(chances, unit, find_chances(count))
    reached = np.abs(len(chances) - 1 - 2 * np.arange(len(chances)))
    return float(chances[reached >= abs(round(float(grid @ seen)))].sum())


def find_grid(steps: np.ndarray) -> np.ndarray | None:
    """The steps, none of them 0, as whole multiples of the smallest one, or of a part of it; None
    where they are not.
    """
    least = np.abs(steps).min()
    for part in range(1, PARTS + 1):
        multiples = steps * part / least
        if np.allclose(multiples, np.round(multiples), rtol=0, atol=1e-6):
            return np.round(multiples).astype(np.int64)
    return None


def find_chances(n: int) -> np.ndarray:
    """[n + 1] the chance of 0, 1, .. n heads of n fair coins."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    return np.exp(logs[n] - logs - logs[::-1] - n * math.log(2))


def split_draws(total: int, n: int) -> Iterator[tuple[int, int]]:
    """(how many, how many before) of `total` draws of n numbers, as many at once as there is room
    for.
    """
    most = max(1, ROOM // max(1, n))
    return ((min(most, total - start), start) for start in range(0, total, most))


def _spread(chances: np.ndarray, unit: int, added: np.ndarray) -> np.ndarray:
    """The chances of sums to which 0, 1, .. multiples of a unit are added."""
    spaced = np.zeros(unit * (len(added) - 1) + 1)
    spaced[::unit] = added
    return np.convolve(chances, spaced)
