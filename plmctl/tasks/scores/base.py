"""The scores of a task: functions of its predictions alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.core.parts import base_of


@base_of("scores")
class Scores(ABC):
    """Computes metrics of predictions, so that saved predictions give the same digits again."""

    @abstractmethod
    def check(self, names: Sequence[str]) -> list[str]:
        """`names`; ConfigError for an unknown metric."""

    @abstractmethod
    def __call__(
        self, predictions: Sequence[Mapping[str, Any]], names: Sequence[str]
    ) -> dict[str, float]:
        """{metric: value} of `names`, in their order, and of further sums that belong to them.

        Args:
            predictions: The rows of an answer's `predict`.
            names: The metrics.
        """
