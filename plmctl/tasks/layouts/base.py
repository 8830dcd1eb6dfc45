"""The layout of a task: it makes rows of examples, and examples of typed lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import base_of
from plmctl.models.base import Model
from plmctl.tasks.facts import ModelNeeds
from plmctl.tasks.record import Example, Examples
from plmctl.tasks.transform import Transform, pool_rows


@dataclass(frozen=True)
class RowSettings:
    """The settings of a task that shape its rows.

    Args:
        max_length: The most tokens of a row.
        pooling: The states that stand for a row.
        transform: The change of rows for a model.
        sees_later: Whether the state of every token has read the whole text.
        task: The name of the task, for messages.
    """

    max_length: int
    pooling: str
    transform: Transform
    sees_later: bool = True
    task: str = ""


@base_of("layout")
class RowLayout(ABC):
    """Makes rows of examples, and reads the states of a model that an answer is given from.

    `typed` describes the lines that `parse` reads; "": none. `fields` are those of its rows.
    """

    typed: str = "texts that you type, one a line"
    fields: Mapping[str, Field] = {}

    def requires(self, rows: RowSettings) -> ModelNeeds:
        """The needs of its rows; ConfigError where the model cannot meet them."""
        return ModelNeeds()

    def check_tokenizer(self, tokenizer: Any) -> None:  # noqa: B027
        """ConfigError for a setting that a tokenizer does not allow."""

    def check_model(self, model: Model) -> None:  # noqa: B027
        """ConfigError for a setting that a model, which may have no weights, does not allow."""

    def describe_known(self, examples: Examples, path: Any) -> list[str]:
        """Lines on the share of the examples that its knowledge covers; DataError for nothing.

        Args:
            examples: The training examples.
            path: Their files, for messages.
        """
        return []

    @property
    def decided(self) -> dict[str, Any]:
        """Settings of its own as `fit` found them, which every checkpoint carries."""
        return {}

    def fit(self, examples: Examples) -> None:  # noqa: B027
        """Learn settings that are not stated from the training examples."""

    @abstractmethod
    def parse(self, line: str, number: int, columns: Mapping[str, Any]) -> Example:
        """One line of a text file as an unlabelled example; ValueError for another number of
        cells.
        """

    def texts(self, example: Example) -> list[str]:
        """The texts that a new tokenizer learns from."""
        return example.texts

    def unit(self, example: Example) -> str:
        """The unit that stays together where dev is held out of train."""
        return example.unit

    @abstractmethod
    def encode(self, examples: Examples, tokenizer: Any, rows: RowSettings) -> Rows:
        """All rows of a split, without labels; `values.example` numbers their examples."""

    def read(self, model: Model, batch: Batch, rows: RowSettings, *, together: bool) -> Tensor:
        """The states that the answer is given from, `[N, W]` of rows.

        Args:
            model: backbone and heads.
            batch: a micro-batch.
            rows: The settings of rows.
            together: Whether the states of all rows of an example are added.
        """
        return pool_rows(rows, model, batch, together=together)
