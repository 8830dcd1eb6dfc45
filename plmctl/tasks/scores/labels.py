"""Scores of labels over all examples, over bundles that count together, and over slices that are
looked at apart.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from plmctl.core.errors import ConfigError, list_some
from plmctl.core.parts import part_of
from plmctl.core.spelling import spell_setting
from plmctl.tasks.record import Example, Predictions
from plmctl.tasks.scores import metrics
from plmctl.tasks.scores.base import MEAN, Scores, score_slices
from plmctl.tasks.scores.bundles import group_bundles

MACRO = "macro_f1"  # a mean over classes, in which a class of one row counts as much as any
FEW_ROWS = 10  # each row of so few changes the F1 of a class by a tenth or more
SHOWN = 5  # classes that a remark names
Bundles = list[list[int]]  # numbers of the predictions of each


def name_sets(example: Example) -> dict[str, Any]:
    """The sets that an example is in, for its prediction; empty without any."""
    sets = {"bundle": example.bundle, "slices": list(example.slices)}
    return {name: value for name, value in sets.items() if value}


def exact(bundles: Bundles, gold: Sequence[str], guess: Sequence[str]) -> float:
    """The share of bundles of which every answer is right (MultiRC: Khashabi et al., 2018, EM)."""
    right = [all(gold[n] == guess[n] for n in bundle) for bundle in bundles]
    return statistics.fmean(right) if right else 0.0


def parity(bundles: Bundles, guess: Sequence[str]) -> float:
    """The share of bundles of which every answer is the same, right or wrong (the gender parity
    score of AX-g: Wang et al., 2019, arXiv:1905.00537, sec. 3.3).
    """
    same = [len({guess[n] for n in bundle}) == 1 for bundle in bundles]
    return statistics.fmean(same) if same else 0.0


def mrr(bundles: Bundles, gold: Sequence[str], shares: Sequence[float], positive: str) -> float:
    """The mean over bundles of `1 / rank` of the first example of the class `positive`, ranked by
    the probability of that class; of equal ones the mean over all their orders.
    """
    ranks = [expect_rank([(shares[n], gold[n] == positive) for n in own]) for own in bundles]
    return statistics.fmean(ranks) if ranks else 0.0


def expect_rank(examples: Sequence[tuple[float, bool]]) -> float:
    """The mean of `1 / rank` of the first right one of pairs (score, whether it is right); 0
    without a right one. Equal scores have all their orders: of r right ones among n behind m others
    the first has rank `m + k` with the probability `C(n - k, r - 1) / C(n, r)`.
    """
    best = max((score for score, right in examples if right), default=None)
    if best is None:
        return 0.0
    before = sum(score > best for score, _ in examples)
    equal = [right for score, right in examples if score == best]
    n, r = len(equal), sum(equal)
    chances = (math.comb(n - k, r - 1) / (before + k) for k in range(1, n - r + 2))
    return math.fsum(chances) / math.comb(n, r)


def score_labels(
    predictions: Predictions, names: Sequence[str], positive: str | None = None
) -> dict[str, float]:
    """The metrics `names`, the score of a constant prediction, and `<first metric>/<slice>`.

    `mean` is the plain mean of the others (SuperGLUE counts tasks with two metrics by it).
    A slice that has all examples is none.

    Args:
        predictions: each with `gold` and `guess`, and `bundle` and `slices` where it has some.
        positive: the class whose F1 counts, and by whose probability `mrr` ranks.
    """
    gold = [str(p["gold"]) for p in predictions]
    bundles = group_bundles(predictions)

    def measure(guess: Sequence[str], shares: Sequence[float]) -> dict[str, float]:
        plain = metrics.by_name(positive)
        values = {name: plain[name](gold, guess) for name in names if name in plain}
        values |= {"exact": exact(bundles, gold, guess)} if "exact" in names else {}
        values |= {"parity": parity(bundles, guess)} if "parity" in names else {}
        if positive is not None and "mrr" in names:
            values["mrr"] = mrr(bundles, gold, shares, positive)
        mean = {MEAN: statistics.fmean(values.values())} if MEAN in names else {}
        return {name: (values | mean)[name] for name in names}

    def constant(name: str) -> float:
        tried = metrics.often(gold, [positive])
        alike = [0.0] * len(gold)
        return max((measure([label] * len(gold), alike)[name] for label in tried), default=0.0)

    floor = metrics.floor(names, gold, constant)
    guess = [str(p["guess"]) for p in predictions]
    return (
        measure(guess, [_share(p, positive) for p in predictions] if "mrr" in names else [])
        | floor
        | score_slices(partial(score_labels, positive=positive), predictions, names)
    )


@part_of("scores")
class LabelScores(Scores):
    """`score_labels`; `positive` is the class whose F1 counts, and by whose probability `mrr`
    ranks. Without it both are no metrics.
    """

    def __init__(self, *, positive: str | None = None) -> None:
        self.positive = positive
        self.known = [*metrics.by_name(positive), "exact", "parity", MEAN]
        self.known += ["mrr"] if positive is not None else []

    def describe_metric(self, name: str) -> str:
        meanings = {"f1": f"F1 of the label {self.positive}", **metrics.MEANINGS}
        return meanings.get(name, "")

    def __call__(self, predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
        return score_labels(predictions, names, self.positive)

    def check_names(self, names: Sequence[str]) -> None:
        if self.positive is not None and self.positive not in names:
            allowed = f"one of the labels: {', '.join(names)}"
            fix = spell_setting("task.positive", names[-1])
            raise ConfigError("task.positive", self.positive, allowed, fix=fix)

    def describe_classes(self, predictions: Predictions, names: Sequence[str]) -> str:
        if MACRO not in names:
            return ""
        counts = Counter(str(p["gold"]) for p in predictions)
        known = {*counts, *(str(p["guess"]) for p in predictions)}
        rare = sorted((counts[name], name) for name in known if counts[name] < FEW_ROWS)
        if not 0 < len(rare) < len(known):
            return ""
        named = list_some([f"{name} {count:,}" for count, name in rare], SHOWN)
        return (
            f"the mean of {len(known):,} classes that are labels or predictions here, each with the"
            f" same weight; fewer than {FEW_ROWS} rows have: {named}"
        )


def _share(prediction: Mapping[str, Any], positive: str | None) -> float:
    """The probability of a class; of a prediction without any, whether it is the class."""
    shares = prediction.get("probabilities")
    return float(str(prediction["guess"]) == positive if shares is None else shares[positive])
