"""Words that are drawn as negatives, by a power of their counts."""

from __future__ import annotations

import numpy as np


class NoiseWords:
    """Draws words with `p(w) ~ count(w) ** power` (Mikolov et al., 2013, arXiv:1310.4546, sec.
    2.2), each draw in constant time, by an alias table (Walker, 1977).
    """

    def __init__(self, counts: np.ndarray, power: float) -> None:
        weights = counts.astype(np.float64) ** power
        shares = weights * (len(weights) / weights.sum())  # mean 1
        self.alias = np.arange(len(shares))
        small, large = (list(np.flatnonzero(part)) for part in (shares < 1, shares >= 1))
        while small and large:
            low, high = small.pop(), large[-1]
            self.alias[low] = high
            shares[high] -= 1 - shares[low]
            if shares[high] < 1:
                small.append(large.pop())
        shares[[*small, *large]] = 1  # entries that rounding has left
        self.shares = shares

    def draw(self, generator: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
        """int64 of this shape."""
        column = generator.integers(len(self.shares), size=size)
        kept = generator.random(size, np.float32) < self.shares[column]
        return np.where(kept, column, self.alias[column])
