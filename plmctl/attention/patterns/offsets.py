"""Exact sets of distances between a query and a key: intervals, gaps and unbounded sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np


@dataclass(frozen=True, eq=False)
class Offsets:
    """A set of integers: the offsets `key - query` that a query sees.

    A step function over all integers: `first` says whether the smallest integers belong to the set,
    and membership changes at each number in `steps` (rising). Everything up to 0 is
    `Offsets(True, [1])`, the window from -2 to 2 is `Offsets(False, [-2, 3])`.
    """

    first: bool
    steps: np.ndarray  # [n] int64, strictly rising

    @classmethod
    def everything(cls) -> Offsets:
        """The set of all integers."""
        return cls(True, np.zeros(0, np.int64))

    @classmethod
    def between(cls, low: int | None, high: int | None) -> Offsets:
        """All integers from `low` to `high`, both included; None: no bound."""
        steps = [low] if low is not None else []
        steps += [high + 1] if high is not None else []
        return cls(low is None, np.array(steps, np.int64))

    @classmethod
    def each(cls, numbers: np.ndarray) -> Offsets:
        """Just these numbers, in rising order."""
        edges = np.stack([numbers, numbers + 1], 1).ravel()
        # the end of one number and the beginning of its neighbour cancel out
        same = edges[1:] == edges[:-1]
        keep = ~(np.append(same, False) | np.insert(same, 0, False))
        return cls(False, edges[keep].astype(np.int64))

    def contains(self, numbers: np.ndarray) -> np.ndarray:
        """Whether each of `numbers` belongs to the set: bool of their shape."""
        changes = np.searchsorted(self.steps, numbers, side="right")
        return (changes % 2 == 1) ^ self.first

    def meets(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """bool: whether the set has a number from `low` to `high`, both included."""
        before = np.searchsorted(self.steps, low, side="right")
        after = np.searchsorted(self.steps, high, side="right")
        return (before != after) | ((before % 2 == 1) ^ self.first)

    def least(self) -> int | None:
        """The smallest member; None: there is no bound. ValueError for the empty set."""
        if self.first:
            return None
        if not len(self.steps):
            raise ValueError("the empty set has no smallest member")
        return int(self.steps[0])

    def most(self) -> int | None:
        """The largest member; None: there is no bound. ValueError for the empty set."""
        if self.first ^ (len(self.steps) % 2 == 1):
            return None
        if not len(self.steps):
            raise ValueError("the empty set has no largest member")
        return int(self.steps[-1]) - 1

    def is_empty(self) -> bool:
        """Whether the set has no member."""
        return not self.first and not len(self.steps)

    def __invert__(self) -> Offsets:
        return Offsets(not self.first, self.steps)

    def __and__(self, other: Offsets) -> Offsets:
        return self._join(other, np.logical_and)

    def __or__(self, other: Offsets) -> Offsets:
        return self._join(other, np.logical_or)

    def _join(self, other: Offsets, rule: Callable[..., np.ndarray]) -> Offsets:
        steps = np.union1d(self.steps, other.steps)
        first = bool(rule(self.first, other.first))
        values = rule(self.contains(steps), other.contains(steps))
        changed = values != np.concatenate([[first], values[:-1]]) if len(values) else values
        return Offsets(first, steps[changed.astype(bool)])


@dataclass(frozen=True, eq=False)
class Sight:
    """The offsets that each head sees, exactly (`exact`) or at most.

    One entry serves all heads. Two sights with different numbers of heads can be combined if one of
    the numbers is 1.
    """

    heads: tuple[Offsets, ...]
    exact: bool = True

    @classmethod
    def unknown(cls) -> Sight:
        """Any offset may be seen."""
        return cls((Offsets.everything(),), exact=False)

    def together(self) -> Offsets:
        """The offsets that at least one head sees."""
        return reduce(Offsets.__or__, self.heads)

    def __and__(self, other: Sight) -> Sight:
        return self._join(other, Offsets.__and__)

    def __or__(self, other: Sight) -> Sight:
        return self._join(other, Offsets.__or__)

    def __invert__(self) -> Sight:
        if not self.exact:  # an upper bound says nothing about the offsets that are not seen
            return Sight.unknown()
        return Sight(tuple(~offsets for offsets in self.heads))

    def _join(self, other: Sight, rule: Callable[[Offsets, Offsets], Offsets]) -> Sight:
        count = max(len(self.heads), len(other.heads))
        pairs = zip(_spread(self.heads, count), _spread(other.heads, count), strict=True)
        return Sight(tuple(rule(a, b) for a, b in pairs), self.exact and other.exact)


def _spread(heads: Sequence[Offsets], count: int) -> Sequence[Offsets]:
    return list(heads) * count if len(heads) == 1 else heads
