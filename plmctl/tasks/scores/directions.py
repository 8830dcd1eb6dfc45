"""The direction of metrics: which are errors, so that a lower value is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from plmctl.tasks.scores.metrics import LOWER, sounds_like_error


class StatesLower(Protocol):
    """Scores, or a task with scores of its own, which name metrics of which lower is better."""

    lower: frozenset[str]


@dataclass(frozen=True)
class Directions:
    """The directions of the metrics of a task, as a class states them in `lower`, else by the name
    of a metric.

    Args:
        bases: The base classes, whose `lower` states nothing.
    """

    stater: StatesLower
    metrics: Sequence[str]
    bases: tuple[type, ...] = ()

    def larger(self, metric: str) -> bool:
        """Whether a larger value is better."""
        return not (metric in self.stater.lower | LOWER or self._is_guessed(metric))

    @property
    def lower(self) -> list[str]:
        """The metrics of which a lower value is better."""
        return [name for name in self.metrics if not self.larger(name)]

    def describe(self) -> list[str]:
        """A line on metrics whose direction is guessed from their names; none where all state
        theirs.
        """
        guessed = sorted(filter(self._is_guessed, self.metrics))
        if not guessed:
            return []
        stated = ", ".join(f'"{name}"' for name in guessed)
        return [
            f"{', '.join(guessed)}: a lower value counts as better, as the name says; to state it:"
            f" lower = frozenset({{{stated}}}) in {type(self.stater).__name__},"
            " and frozenset() where a higher one is"
        ]

    def _is_guessed(self, metric: str) -> bool:
        """Whether the name alone says that a metric is an error."""
        stated = metric in self.stater.lower | LOWER or self._is_stated
        return sounds_like_error(metric) and not stated

    @property
    def _is_stated(self) -> bool:
        """Whether the nearest class that names metrics also states their directions."""
        part = self.stater
        kinds = (kind for kind in type(part).__mro__ if {"known", "lower"} & vars(kind).keys())
        nearest = next(kinds)
        return "lower" in vars(part) or (nearest not in self.bases and "lower" in vars(nearest))
