"""Loss spikes: updates whose loss or gradient is far above those of before."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

SIGMA = 1.4826  # standard deviations in a median absolute deviation of normal numbers
LEAST_SPREAD = 0.01  # the least spread, as a share of the median
SHARE = 4  # an update is judged once a quarter of the window is full


class Spikes:
    """Judges each number of an update by the same number of the updates before it.

    A number x is a spike where `x > median + deviations * spread`. The median is that of the last
    `window` updates that were made. The spread is 1.4826 times their median absolute deviation, and
    at least 1% of the median.

    Source: PaLM (Chowdhery et al., 2022, arXiv:2204.02311, sec. 5.1) goes back to a checkpoint of
    about 100 updates before a spike, and leaves 200 to 500 batches out.

    Differs: PaLM's spikes were found by eye, and so many batches were chosen. Here a rule finds
    them, the run goes back to its newest checkpoint, and leaves out the rows up to the spike.

    Args:
        back: A spike takes the run back to its newest checkpoint; else its update alone is left
            out.
        window: updates.
        deviations: The distance from the median, in spreads.
    """

    def __init__(self, *, back: bool, window: int = 100, deviations: float = 10.0) -> None:
        self.back, self.window, self.deviations = back, window, deviations
        self._past: dict[str, deque[float]] = {}

    def find(self, numbers: Mapping[str, float]) -> str:
        """The first number that is a spike, in words; "" if none is."""
        for name, value in numbers.items():
            past = self._past.get(name, ())
            if len(past) < max(2, self.window // SHARE):
                continue
            median = statistics.median(past)
            deviation = statistics.median(abs(each - median) for each in past)
            spread = max(SIGMA * deviation, LEAST_SPREAD * abs(median))
            if value > median + self.deviations * spread:
                return f"{name} {value:.4g} is far above its median {median:.4g}"
        return ""

    def take(self, numbers: Mapping[str, float]) -> None:
        """Remember the numbers of an update that was made."""
        for name, value in numbers.items():
            self._past.setdefault(name, deque(maxlen=self.window)).append(value)

    def clear(self) -> None:
        """Forget them: other data have other numbers."""
        self._past = {}

    def state_dict(self) -> dict[str, list[float]]:
        """The numbers of the window, as JSON."""
        return {name: list(past) for name, past in self._past.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved window."""
        self._past = {name: deque(past, maxlen=self.window) for name, past in state.items()}
