"""Ratings (stars, grades): classes with an order, scored by weighted kappa (Cohen, 1968)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from plmctl.core.parts import part_of
from plmctl.tasks.classification import Classification, ClassificationSettings
from plmctl.tasks.scores.labels import score_labels


def weighted_kappa(gold: Sequence[int], guess: Sequence[int]) -> float:
    """`1 - sum (g - p)^2 / mean over all pairs of a gold and a guess of the same`; 0 where all
    agree by chance alone.
    """
    apart = sum((g - p) ** 2 for g, p in zip(gold, guess, strict=True))
    by_chance = sum((g - p) ** 2 for g, p in product(gold, guess)) / len(gold)
    return 1 - apart / by_chance if by_chance else 0.0


@part_of("task")
class Ratings(Classification):
    """Classification whose labels are numbers in an order; the metric `kappa` counts how far a
    wrong label is away.
    """

    @classmethod
    def known_metrics(cls, settings: ClassificationSettings) -> Iterable[str]:
        return [*super().known_metrics(settings), "kappa"]

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        others = [name for name in self.metrics if name != "kappa"]
        scores = score_labels(predictions, others, self.positive) if others else {}
        ranks = {name: rank for rank, name in enumerate(self.names)}
        pairs = [(ranks[str(each["gold"])], ranks[each["guess"]]) for each in predictions]
        return {"kappa": weighted_kappa(*map(list, zip(*pairs, strict=True))), **scores}
