"""Scores of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.core.parts import part_of
from plmctl.tasks.scores.base import Scores
from plmctl.tasks.scores.metrics import CORRELATIONS


@part_of("scores")
class NumberScores(Scores):
    """Pearson's and Spearman's correlation of predicted and gold numbers."""

    known = tuple(CORRELATIONS)

    def __call__(
        self, predictions: Sequence[Mapping[str, Any]], names: Sequence[str]
    ) -> dict[str, float]:
        gold, guess = [p["gold"] for p in predictions], [p["guess"] for p in predictions]
        return {name: CORRELATIONS[name](gold, guess) for name in names}
