"""Sums between two log lines, which stay on the device until they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

Entry = tuple[str, Tensor | float, Tensor | float]  # name, total, count


class Meter:
    """`mean = sum of totals / sum of counts` for each name; adding never waits for the device."""

    def __init__(self) -> None:
        self._pending: list[Entry] = []
        self._sums: dict[str, list[float]] = {}

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add (name, total, count) entries."""
        self._pending += entries

    def sums(self) -> dict[str, list[float]]:
        """{name: [total, count]} of this process, copied from the device at once."""
        tensors = [
            x.detach().double().reshape(())
            for _, *pair in self._pending
            for x in pair
            if isinstance(x, Tensor)
        ]
        values = iter(torch.stack(tensors).tolist() if tensors else [])
        for name, *pair in self._pending:
            own = self._sums.setdefault(name, [0.0, 0.0])
            for i, x in enumerate(pair):
                own[i] += next(values) if isinstance(x, Tensor) else x
        self._pending = []
        return self._sums

    def clear(self) -> None:
        """Start again from zero."""
        self._pending, self._sums = [], {}

    def load(self, sums: Mapping[str, list[float]]) -> None:
        """Restore saved sums."""
        self._pending, self._sums = [], {name: list(pair) for name, pair in sums.items()}


def sum_parts(parts: Iterable[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    """The sums of several processes, by name."""
    total_of: dict[str, list[float]] = {}
    for part in parts:
        for name, (total, count) in part.items():
            own = total_of.setdefault(name, [0.0, 0.0])
            own[0], own[1] = own[0] + total, own[1] + count
    return total_of


def compute_means(sums: Mapping[str, list[float]]) -> dict[str, float]:
    """The mean of each name with a count; seven digits, so that the order of summation does not
    show.
    """
    return {name: round_digits(total / count) for name, (total, count) in sums.items() if count}


def round_digits(value: float) -> float:
    """The number with seven digits."""
    return float(f"{value:.7g}")


def numbers_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record, without its lists and texts."""
    return {
        name: value
        for name, value in record.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
