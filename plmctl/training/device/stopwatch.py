"""The time that a device computes, measured without waiting for it."""

from __future__ import annotations

import time

import torch


class Stopwatch:
    """Measures the time between `begin` and `end`: on a GPU by two events in its queue, elsewhere
    by the clock.
    """

    def __init__(self, device: torch.device) -> None:
        self._events = (
            [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            if device.type == "cuda"
            else []
        )
        self._times = [0.0, 0.0]
        self.ran = False

    def begin(self) -> None:
        """Mark the beginning."""
        self._mark(0)

    def end(self) -> None:
        """Mark the end."""
        self._mark(1)
        self.ran = True

    def _mark(self, which: int) -> None:
        if self._events:
            self._events[which].record()
        else:
            self._times[which] = time.perf_counter()

    def seconds(self) -> float:
        """The time between the two marks; on a GPU only once it has passed the second one."""
        if not self.ran:
            return 0.0
        if self._events:
            return self._events[0].elapsed_time(self._events[1]) / 1e3
        return self._times[1] - self._times[0]
