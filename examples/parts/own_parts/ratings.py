"""Ratings (stars, grades): classes with an order, scored by weighted kappa (Cohen, 1968)."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from plmctl.core.parts import part_of
from plmctl.tasks.scores.base import Scores
from plmctl.tasks.scores.labels import LabelScores


def weighted_kappa(gold: Sequence[int], guess: Sequence[int]) -> float:
    """`1 - sum (g - p)^2 / mean over all pairs of a gold and a guess of the same`; 0 where all
    agree by chance alone.
    """
    apart = sum((g - p) ** 2 for g, p in zip(gold, guess, strict=True))
    by_chance = sum((g - p) ** 2 for g, p in product(gold, guess)) / len(gold)
    return 1 - apart / by_chance if by_chance else 0.0


@part_of("scores")
class RatingScores(Scores):
    """The scores of labels, and `kappa`, which counts how far a wrong label is away."""

    labels = LabelScores()
    known = ("kappa", *labels.known)

    def __call__(
        self, predictions: Sequence[Mapping[str, Any]], names: Sequence[str]
    ) -> dict[str, float]:
        others = [name for name in names if name != "kappa"]
        scores = self.labels(predictions, others) if others else {}
        pairs = [(int(each["gold"]), int(each["guess"])) for each in predictions]
        return {"kappa": weighted_kappa(*map(list, zip(*pairs, strict=True))), **scores}
