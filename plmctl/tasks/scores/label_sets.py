"""Scores of sets of labels: averages over all decisions, over labels, over examples (Tsoumakas et
al., 2010, "Mining Multi-label Data", sec. 34.5; the definitions of scikit-learn).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from plmctl.core.parts import part_of
from plmctl.tasks.record import Predictions
from plmctl.tasks.scores.base import Scores, score_slices
from plmctl.tasks.scores.metrics import divide_counts, floor, is_larger_better, often
from plmctl.tasks.scores.types import NAMES as TYPES
from plmctl.tasks.scores.types import Types, find_threshold, score_types

PARTS = ("precision", "recall", "f1")
HAMMING = "hamming_loss"
TRIED = 256  # labels that are tried as a constant prediction: sets have further labels
NAMES = (
    *(f"{kind}_{part}" for kind in ("micro", "macro", "example") for part in reversed(PARTS)),
    "subset_accuracy",
    HAMMING,
)


def score_sets(
    gold: Sequence[Types], guess: Sequence[Types], names: Sequence[str]
) -> dict[str, float]:
    """All scores by name; a share of nothing is 0.

    micro: over all decisions together. Macro: the mean over the labels `names`. Example: the mean
    over examples. The metric subset_accuracy is the share of examples whose set is exactly right.
    The metric hamming_loss is the share of all decisions, one for each example and label, that are
    wrong.
    """
    sets = [({*g}, {*p}) for g, p in zip(gold, guess, strict=True)]
    right, guessed, present = (
        Counter(name for pair in sets for name in pick(*pair))
        for pick in (set.intersection, lambda _, p: p, lambda g, _: g)
    )
    by_label = [divide_counts(right[name], guessed[name], present[name]) for name in names]
    by_example = [divide_counts(len(g & p), len(p), len(g)) for g, p in sets]
    kinds = {
        "micro": divide_counts(right.total(), guessed.total(), present.total()),
        "macro": _mean(by_label),
        "example": _mean(by_example),
    }
    found = {
        f"{kind}_{part}": value
        for kind, values in kinds.items()
        for part, value in zip(PARTS, values, strict=True)
    }
    decisions = len(sets) * len(names)
    found["subset_accuracy"] = score_types(gold, guess)["strict"]
    found[HAMMING] = sum(len(g ^ p) for g, p in sets) / decisions if decisions else 0.0
    return {name: found[name] for name in NAMES}


@part_of("scores")
class SetScores(Scores):
    """The metrics by `measure`. The first one is followed by that of a constant guess, none or one
    label. The next two are the threshold that has the best micro F1 on these very predictions, and
    that F1; the first metric of each slice follows.
    """

    means: Mapping[str, str] = {
        "micro": "over all decisions together (micro)",
        "macro": "plain mean over labels (macro)",
        "example": "mean over examples",
        "subset": "share of examples with exactly the right labels",
        "hamming": "share of wrong decisions",
    }
    known = NAMES
    lower = frozenset({"hamming_loss"})
    f1 = "micro_f1"

    def describe_metric(self, name: str) -> str:
        return self.means.get(name.partition("_")[0], "")

    def measure(
        self, gold: Sequence[Types], guess: Sequence[Types], names: Sequence[str]
    ) -> Mapping[str, float]:
        """{metric: value} of sets of labels, which are the `names`."""
        return score_sets(gold, guess, names)

    def __call__(self, predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
        gold = [p["gold"] for p in predictions]
        known, labels = [p["probabilities"] for p in predictions], _list_labels(predictions)
        found = self._measure_all(predictions, names)
        tried = often((name for own in gold for name in own), most=TRIED)
        constant = [
            self.measure(gold, [own] * len(gold), labels) for own in ([], *([n] for n in tried))
        ]

        def best(name: str) -> float:
            return (max if is_larger_better(name, self.lower) else min)(
                each[name] for each in constant
            )

        threshold, f1 = find_threshold(gold, known)
        tuned = {"best_threshold": threshold, f"{self.f1}_at_best_threshold": f1}
        slices = score_slices(self._measure_all, predictions, names)
        return found | floor(names, [], best) | tuned | slices

    def _measure_all(self, predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
        """The metrics `names`, over the labels of these predictions."""
        gold, guess = [p["gold"] for p in predictions], [p["guess"] for p in predictions]
        found = self.measure(gold, guess, _list_labels(predictions))
        return {name: found[name] for name in names}


@part_of("scores")
class TypeScores(SetScores):
    """The same with the scores of types by `score_types`."""

    loose = "loose micro average (Ling and Weld, 2012)"
    means: Mapping[str, str] = {
        **dict.fromkeys(("f1", "precision", "recall"), loose),
        "macro": "loose macro average (Ling and Weld, 2012)",
        "strict": "share of mentions with exactly the right types",
    }
    known = TYPES
    f1 = "f1"

    def measure(
        self, gold: Sequence[Types], guess: Sequence[Types], names: Sequence[str]
    ) -> Mapping[str, float]:
        return score_types(gold, guess)


def _list_labels(predictions: Predictions) -> list[str]:
    """All labels of the gold sets and of the probabilities."""
    gold = {name for prediction in predictions for name in prediction["gold"]}
    return sorted(gold.union(*(prediction["probabilities"] for prediction in predictions)))


def _mean(rows: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    count = max(1, len(rows))
    return tuple(math.fsum(column) / count for column in zip(*rows, strict=True)) or (0.0,) * 3
