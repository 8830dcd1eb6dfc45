"""Scores of numbers."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.core.parts import part_of
from plmctl.tasks.record import Predictions
from plmctl.tasks.scores.base import Scores, score_slices
from plmctl.tasks.scores.metrics import CORRELATIONS


@part_of("scores")
class NumberScores(Scores):
    """Pearson's and Spearman's correlation of predicted and gold numbers, also of each slice."""

    known = tuple(CORRELATIONS)

    def describe_metric(self, name: str) -> str:
        return {"pearson": "linear correlation", "spearman": "correlation of ranks"}[name]

    def __call__(self, predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
        return correlate(predictions, names) | score_slices(correlate, predictions, names)


def correlate(predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
    """{name: correlation of `guess` and `gold`}."""
    gold, guess = [p["gold"] for p in predictions], [p["guess"] for p in predictions]
    return {name: CORRELATIONS[name](gold, guess) for name in names}
