"""The scores of a task: functions of its predictions alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of
from plmctl.tasks.record import Predictions
from plmctl.tasks.scores.metrics import check_metrics

MEAN = "mean"  # the plain mean of the other metrics
MEANINGS = "meanings"  # the entry of result.json with the kinds of metrics


def join_meanings(meanings: Mapping[str, str]) -> str:
    """`f1, recall: of what kind; exact: ...`: metrics with the same words in one."""
    groups: dict[str, list[str]] = {}
    for name, text in meanings.items():
        groups.setdefault(text, []).append(name)
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in groups.items())


def score_slices(
    score: Callable[[Sequence[Mapping[str, Any]], Sequence[str]], Mapping[str, float]],
    predictions: Predictions,
    names: Sequence[str],
) -> dict[str, float]:
    """`<first metric>/<slice>` of each slice of the predictions. A slice that has all is none.

    Args:
        predictions: The predictions, with `slices` where they are in some.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for prediction in predictions:
        for name in prediction.get("slices", ()):
            found.setdefault(name, []).append({**prediction, "slices": ()})
    return {
        f"{names[0]}/{name}": score(own, names)[names[0]]
        for name, own in sorted(found.items())
        if len(own) < len(predictions)
    }


@base_of("scores")
class Scores(ABC):
    """Computes metrics of predictions, so that saved predictions give the same digits again.
    `known` are the names of its metrics, `default` those of a config without any, `lower` those of
    which a lower value is better. Metrics of `percent` are from 0 to 100, others from 0 to 1.
    """

    known: Sequence[str] = ()
    default: Sequence[str] = ()
    lower: frozenset[str] = frozenset()
    percent: frozenset[str] = frozenset()

    def check(self, names: Sequence[str] | None, *, fix: str = "") -> list[str]:
        """`names`, or those by default; ConfigError for an unknown metric, with this fix."""
        names = self.default if names is None else names
        checked = check_metrics(names, self.known, fix=fix)
        if checked == [MEAN]:
            allowed = "with others, of which it is the mean"
            raise ConfigError("task.metrics", checked, allowed, fix="task.metrics=[mean,accuracy]")
        return checked

    def check_names(self, names: Sequence[str]) -> None:  # noqa: B027
        """ConfigError for a setting that is none of these labels."""

    def describe_metric(self, name: str) -> str:
        """The kind of a metric, where several have its name; ""."""
        return ""

    def describe_classes(self, predictions: Predictions, names: Sequence[str]) -> str:
        """A sentence on rare classes that a mean over classes counts as others; "" without any."""
        return ""

    @abstractmethod
    def __call__(self, predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
        """{metric: value} of `names`, in their order, and of further sums that belong to them.

        Args:
            predictions: The rows of an answer's `predict`.
            names: The metrics.
        """
