"""Scores of tags of words: of the entities that they mark, and of single words."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.core.parts import part_of
from plmctl.tasks.record import Predictions
from plmctl.tasks.scores import metrics
from plmctl.tasks.scores.base import Scores

ENTITIES = tuple(metrics.entity_scores([], []))  # metrics that tags without any lack
WORDS = tuple(metrics.by_name(None))
BY_ENTITY = (
    "entities of exact span and type, micro average as in conlleval, where an I- behind O begins"
    " one, too"
)
BY_WORD = "single words, not entities"


@part_of("scores")
class TagScores(Scores):
    """Precision, recall and F1 of entities, and the scores of labels over single
    words.
    """

    known = (*ENTITIES, *WORDS)
    default = ENTITIES

    def describe_metric(self, name: str) -> str:
        return BY_ENTITY if name in ENTITIES else BY_WORD

    def __call__(self, predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
        gold, guess = [p["gold"] for p in predictions], [p["guess"] for p in predictions]
        flat = [tag for tags in gold for tag in tags], [tag for tags in guess for tag in tags]
        of_tags = metrics.by_name(None)
        names = [name for name in names if name in TagScores.known]
        known = metrics.entity_scores(gold, guess)
        known |= {name: metric(*flat) for name, metric in of_tags.items() if name in names}

        def best(name: str) -> float:
            if name in of_tags:
                return metrics.constant(of_tags[name], flat[0])
            return metrics.constant_entity_scores(gold)[name]

        return {name: known[name] for name in names} | metrics.floor(names, flat[0], best)
