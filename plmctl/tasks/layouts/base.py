"""The layout of a task: it makes rows of examples, and examples of typed lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plmctl.core.batch import Rows
from plmctl.core.parts import base_of
from plmctl.tasks.record import Example
from plmctl.tasks.transform import Transform


@dataclass(frozen=True)
class RowSettings:
    """The settings of a task that shape its rows.

    Args:
        max_length: The most tokens of a row.
        pooling: The states that stand for a row.
        transform: The change of rows for a model.
    """

    max_length: int
    pooling: str
    transform: Transform


@base_of("layout")
class RowLayout(ABC):
    """Makes rows of examples. `typed` describes the lines that `parse` reads; "": none."""

    typed: str = "texts that you type, one a line"

    @abstractmethod
    def parse(self, line: str, number: int, columns: Mapping[str, Any]) -> Example:
        """One line of a text file as an unlabelled example; ValueError for another number of
        cells.
        """

    def texts(self, example: Example) -> list[str]:
        """The texts that a new tokenizer learns from."""
        return [
            " ".join(value) if isinstance(value, list) else value
            for name, value in example.fields.items()
            if name != "answers"
        ]

    @abstractmethod
    def encode(self, examples: Sequence[Example], tokenizer: Any, rows: RowSettings) -> Rows:
        """All rows of a split, without labels; `values.example` numbers their examples."""
