"""SQuAD's exact match and F1, versions 1.1 and 2.0, by the rules that the official evaluation
scripts publish.

A text with Chinese characters has no spaces between its words: `characters` cuts it into these
(MLQA, Lewis et al., 2020, arXiv:1910.07475, sec. 4), `run` as CMRC 2018 does (`cmrc_text`).
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add
from typing import Literal, NamedTuple

from plmctl.tasks.record import Predictions
from plmctl.tasks.scores import cmrc_text
from plmctl.text.sentences import CJK

# ASCII only: Unicode punctuation stays, as in the official script
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CHINESE = re.compile(f"([{CJK}])")
# the common part of two answers: words in any order, words and Chinese characters in any order, or
# the longest common run of both
Overlap = Literal["bag", "characters", "run"]
PERCENT = frozenset(  # thresholds are not
    f"{of}{name}" for of in ("", "HasAns_", "NoAns_", "best_") for name in ("f1", "exact")
)


class Comparison(NamedTuple):
    """How the texts of two answers are compared."""

    normalise: Callable[[str], str]  # the normal form of answers that match exactly
    split: Callable[[str], list[str]]
    count_shared: Callable[[Sequence[str], Sequence[str]], int]  # tokens
    shared: str  # the name of these tokens


def normalise(text: str) -> str:
    """Lower case, ASCII punctuation deleted, the words a, an, the blanked, white space collapsed:
    in this order.

    In a text with Chinese characters all punctuation is deleted, and each of these characters
    stands alone.
    """
    if _CHINESE.search(text):
        bare = "".join(
            c
            for c in text.lower().translate(_PUNCTUATION)
            if c != "～" and unicodedata.category(c)[0] != "P"
        )
        return " ".join(_CHINESE.sub(r" \1 ", bare).split())
    return normalise_english(text)


def normalise_english(text: str) -> str:
    """As `normalise`, also of a text with Chinese characters."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def is_chinese(text: str) -> bool:
    """Whether there is a Chinese character in it."""
    return _CHINESE.search(text) is not None


def exact(gold: str, guess: str, *, overlap: Overlap = "bag") -> float:
    """1 if both are the same after normalisation, otherwise 0."""
    bare = COMPARISONS[overlap].normalise
    return float(bare(gold) == bare(guess))


def f1(gold: str, guess: str, *, version: int = 2, overlap: Overlap = "bag") -> float:
    """F1 of the tokens. With an empty side, 2.0 gives 1 if both are empty; 1.1 gives 0 always."""
    comparison = COMPARISONS[overlap]
    golds, guesses = comparison.split(gold), comparison.split(guess)
    if not golds or not guesses:
        return float(golds == guesses) if version == 2 else 0.0
    same = comparison.count_shared(golds, guesses)
    if not same:
        return 0.0
    # rounded as in the official scripts, so that sums which are equal there are equal here
    precision, recall = same / len(guesses), same / len(golds)
    return (2 * precision * recall) / (precision + recall)


def count_bag(left: Sequence[str], right: Sequence[str]) -> int:
    """The number of tokens that occur in both, each as often as in the one with fewer."""
    return sum((Counter(left) & Counter(right)).values())


def longest_run(left: Sequence[str], right: Sequence[str]) -> int:
    """The number of tokens in the longest run that occurs in both."""
    best, before = 0, [0] * (len(right) + 1)
    for token in left:
        now = [0] + [
            before[index] + 1 if token == other else 0 for index, other in enumerate(right)
        ]
        best, before = max(best, *now), now
    return best


COMPARISONS: dict[str, Comparison] = {
    "bag": Comparison(
        normalise_english,
        lambda text: normalise_english(text).split(),
        count_bag,
        "shared words in any order, as for SQuAD",
    ),
    "characters": Comparison(
        normalise,
        lambda text: normalise(text).split(),
        count_bag,
        "shared words and Chinese characters in any order",
    ),
    "run": Comparison(
        cmrc_text.normalise,
        cmrc_text.split,
        longest_run,
        "longest common run of Chinese characters and words, as for CMRC 2018",
    ),
}


def describe_answers(name: str, overlap: Overlap = "bag") -> str:
    """The kind of the metrics f1 and exact of answers; "" of others."""
    best = "mean over questions of the best right answer"
    shared = f"{COMPARISONS[overlap].shared}, {best}"
    same = "share of answers equal to a right one after normalisation"
    return {"f1": shared, "exact": same, "em": same}.get(name, "")


def score_v1(predictions: Predictions, *, overlap: Overlap = "bag") -> dict[str, float]:
    """Version 1.1: `{"golds": [...], "guess": text or None}`; the best gold counts; a missing
    guess (None) counts 0.
    """
    n = len(predictions) or 1
    present = [p for p in predictions if p["guess"] is not None]
    measures = {
        "f1": partial(f1, version=1, overlap=overlap),
        "exact": partial(exact, overlap=overlap),
    }
    best = {
        name: [max((measure(g, p["guess"]) for g in p["golds"]), default=0.0) for p in present]
        for name, measure in measures.items()
    }
    # one after the other, as the script does: `sum` of Python 3.12 keeps what rounding loses
    return {name: 100 * reduce(add, scores, 0.0) / n for name, scores in best.items()}


def score_v2(
    predictions: Predictions, *, threshold: float = 0.0, overlap: Overlap = "bag"
) -> dict[str, float]:
    """Version 2.0: `{"golds", "guess": best text, "null_odds"}`; the answer is empty where
    `null_odds > threshold`.

    A question with gold answers is answerable. Gold answers that normalise to nothing are not
    compared with the guess; where no other is left, the empty text is. Missing guesses (None) are
    left out, except that all questions without an answer are right before any answer is admitted.
    `best_*` are the scores under the threshold that is best on these predictions.
    """
    present = [p for p in predictions if p["guess"] is not None]
    bare = COMPARISONS[overlap].normalise
    golds = [[g for g in p["golds"] if bare(g)] or [""] for p in present]
    has_answer = [bool(p["golds"]) for p in present]
    odds = [float(p["null_odds"]) for p in present]
    scores: dict[str, float] = {}
    empty = sum(not p["golds"] for p in predictions)
    for name, metric in (
        ("f1", partial(f1, overlap=overlap)),
        ("exact", partial(exact, overlap=overlap)),
    ):
        raw = [
            max(metric(g, p["guess"]) for g in gold) for gold, p in zip(golds, present, strict=True)
        ]
        kept = [
            float(not has) if o > threshold else r
            for r, has, o in zip(raw, has_answer, odds, strict=True)
        ]
        scores[name] = _percent(kept)
        scores[f"HasAns_{name}"] = _percent(
            [k for k, has in zip(kept, has_answer, strict=True) if has]
        )
        scores[f"NoAns_{name}"] = _percent(
            [k for k, has in zip(kept, has_answer, strict=True) if not has]
        )
        best = best_threshold(raw, has_answer, [p["guess"] for p in present], odds, empty)
        scores[f"best_{name}"], scores[f"best_{name}_threshold"] = best
    return scores


def best_threshold(
    raw: Sequence[float],
    has_answer: Sequence[bool],
    guesses: Sequence[str],
    odds: Sequence[float],
    empty: int,
) -> tuple[float, float]:
    """(best score in percent, threshold): answers are admitted in the order of growing `odds`, the
    best prefix wins.

    Start from "everything is unanswerable", which is right `empty` times; an answerable question
    adds its raw score, an unanswerable one with a non-empty guess costs 1. The threshold is the
    odds of the last admitted question, 0.0 where admitting none is best.
    """
    current = best = float(empty)
    threshold = 0.0
    for index in sorted(range(len(odds)), key=lambda i: odds[i]):
        if has_answer[index]:
            current += raw[index]
        elif guesses[index]:
            current -= 1.0
        if current > best:
            best, threshold = current, odds[index]
    return (100 * best / len(odds) if odds else 0.0), threshold


def _percent(values: Sequence[float]) -> float:
    return 100 * sum(values) / len(values) if values else 0.0
