"""Scores of relations between two entities. Micro and macro averages leave out the label of no
relation; the official score is that of SemEval-2010 task 8.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from plmctl.core.parts import part_of
from plmctl.tasks.record import Predictions
from plmctl.tasks.scores import metrics
from plmctl.tasks.scores.base import Scores

Labels = Sequence[str]
Score = tuple[float, float, float]  # precision, recall, F1
# the names of no relation in data sets (TACRED, SemEval, distant ones)
NONE = ("no_relation", "Other", "NA")


def score_micro(gold: Labels, guess: Labels, none: str | None) -> Score:
    """Precision, recall and F1 over all examples; `none`, gold or guessed, is no relation
    (Zhang et al., 2017, the scorer of TACRED).
    """
    right = sum(g == p != none for g, p in zip(gold, guess, strict=True))
    return metrics.divide_counts(right, sum(p != none for p in guess), sum(g != none for g in gold))


def score_macro(gold: Labels, guess: Labels, none: str | None) -> Score:
    """The plain means of precision, recall and F1 of every label but `none` that occurs in gold or
    guess.
    """
    right = Counter(g for g, p in zip(gold, guess, strict=True) if g == p)
    return _average(_score_each(right, gold, guess, sorted({*gold, *guess} - {none})))


def score_semeval(gold: Labels, guess: Labels, none: str | None) -> Score:
    """The official score of SemEval-2010 task 8: (9+1)-way with direction, macro-averaged without
    Other (Hendrickx et al., 2010, sec. 4; semeval2010_task8_scorer-v1.2).

    `Cause-Effect(e1,e2)` and `Cause-Effect(e2,e1)` are one relation; a guess of the other direction
    is wrong, and counts among what was guessed of it. The mean is over the relations of the gold
    labels, and F1 is the mean of their F1.
    """
    kinds = [_undirected(name) for name in gold], [_undirected(name) for name in guess]
    right = Counter(k for g, p, k in zip(gold, guess, kinds[0], strict=True) if g == p)
    return _average(_score_each(right, *kinds, sorted({*kinds[0]} - {none})))


SCORES = {"": score_micro, "macro_": score_macro, "semeval_": score_semeval}
NAMES = tuple(f"{prefix}{name}" for prefix in SCORES for name in ("precision", "recall", "f1"))

AVERAGES = {
    "": "micro average without the label of no relation, as for TACRED",
    "macro": "plain mean over relations, without the label of no relation",
    "semeval": "official macro average of SemEval-2010 task 8",
}


def score_all(gold: Labels, guess: Labels, none: str | None) -> Mapping[str, float]:
    """All of these by name: `precision`, `macro_f1`, `semeval_f1`, ..."""
    values = [value for score in SCORES.values() for value in score(gold, guess, none)]
    return dict(zip(NAMES, values, strict=True))


@part_of("scores")
class RelationScores(Scores):
    """The scores of labels, and `score_all`, both with those of a constant relation.

    Args:
        no_relation: The label that precision, recall and F1 leave out; None: one of `NONE`, if a
            gold label is.
    """

    known = tuple(dict.fromkeys((*metrics.by_name(None), *NAMES)))

    def __init__(self, *, no_relation: str | None = None) -> None:
        self.none = no_relation

    def describe_metric(self, name: str) -> str:
        return AVERAGES[name.rpartition("_")[0]] if name in NAMES else ""

    def __call__(self, predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
        gold, guess = [p["gold"] for p in predictions], [p["guess"] for p in predictions]
        none = self.none or next((name for name in NONE if name in gold), None)

        def measure(guesses: Sequence[str]) -> dict[str, float]:
            plain = {name: score(gold, guesses) for name, score in metrics.by_name(None).items()}
            return plain | dict(score_all(gold, guesses, none))

        found = measure(guess)
        constant = [measure([name] * len(gold)) for name in metrics.often(gold)]
        floor = metrics.floor(
            names, gold, lambda name: max((each[name] for each in constant), default=0.0)
        )
        return {name: found[name] for name in names} | floor


def _undirected(label: str) -> str:
    return label.partition("(")[0]


def _score_each(
    right: Counter[str], gold: Labels, guess: Labels, names: Sequence[str | None]
) -> list[Score]:
    present, guessed = Counter(gold), Counter(guess)
    return [
        metrics.divide_counts(right[name], guessed[name], present[name])
        for name in names
        if name is not None
    ]


def _average(scores: Sequence[Score]) -> Score:
    if not scores:
        return 0.0, 0.0, 0.0
    precision, recall, f1 = (
        math.fsum(column) / len(scores) for column in zip(*scores, strict=True)
    )
    return precision, recall, f1
