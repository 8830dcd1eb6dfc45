"""Numbers by name in many rows with the same names, which are kept once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from plmctl.core.tables import release

MANY = 32  # names from which on rows are views; a `dict` takes forty times the room of its numbers


class NamedValues(Mapping[str, float]):
    """One row of a table of numbers, read as {name: number}.

    Args:
        number: {name: its column}, which all rows share.
        values: [K] the numbers.
    """

    __slots__ = ("number", "values_")

    def __init__(self, number: Mapping[str, int], values: np.ndarray) -> None:
        self.number, self.values_ = number, values

    def __getitem__(self, name: str) -> float:
        return float(self.values_[self.number[name]])

    def __iter__(self) -> Iterator[str]:
        return iter(self.number)

    def __len__(self) -> int:
        return len(self.number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping) or len(self) != len(other):
            return False
        return self.copy() == to_dict(other)

    def __repr__(self) -> str:
        return repr(self.copy())

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedValues, (self.number, np.array(self.values_))

    def copy(self) -> dict[str, float]:
        """All numbers, which are read at once, and leave memory where their table is a file."""
        found = dict(zip(self.number, self.values_.tolist(), strict=True))
        release(self.values_)
        return found

    def change(self, change: Callable[[float], float]) -> NamedValues:
        """Itself, with each number replaced by `change` of it: copies of many rows would take too
        much memory.
        """
        self.values_[:] = [change(each) for each in self.values_.tolist()]
        release(self.values_)
        return self


def to_dict(values: Mapping[str, Any]) -> dict[str, Any]:
    """`dict`, which of `NamedValues` is `copy`."""
    return values.copy() if isinstance(values, NamedValues) else dict(values)


def name_rows(names: Sequence[str], table: np.ndarray) -> list[Mapping[str, float]]:
    """{name: number} of each row of `table` [n, K]."""
    if len(names) < MANY:
        return [dict(zip(names, row, strict=True)) for row in table.tolist()]
    number = {name: index for index, name in enumerate(names)}
    return [NamedValues(number, row) for row in table]
