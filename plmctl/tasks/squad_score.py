"""SQuAD's exact match and F1, versions 1.1 and 2.0, by the rules that the official evaluation
scripts publish.

A text with Chinese characters has no spaces between its words: each character is a token, and what
stands between them is cut at spaces (mixed segmentation: MLQA, Lewis et al., 2020,
arXiv:1910.07475, sec. 4; CMRC 2018, Cui et al., 2019).
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from plmctl.text.sentences import CJK

# ASCII only: Unicode punctuation stays, as in the official script
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CHINESE = re.compile(f"([{CJK}])")
# what two answers share: tokens in any order, or their longest common run
Overlap = Literal["bag", "run"]


def normalise(text: str) -> str:
    """Lower case, ASCII punctuation deleted, the words a, an, the blanked, white space collapsed:
    in this order.

    Of a text with Chinese characters all punctuation is deleted, and each of these characters
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


def exact(gold: str, guess: str) -> float:
    """1 if both are the same after `normalise`, otherwise 0."""
    return float(normalise(gold) == normalise(guess))


def f1(gold: str, guess: str, *, version: int = 2, overlap: Overlap = "bag") -> float:
    """F1 of the normalised tokens. With an empty side, 2.0 gives 1 if both are empty; 1.1 gives 0
    always.

    `overlap`: what counts as shared, a bag of tokens (SQuAD, MLQA) or the longest run of them (CMRC
    2018).
    """
    golds, guesses = normalise(gold).split(), normalise(guess).split()
    if not golds or not guesses:
        return float(golds == guesses) if version == 2 else 0.0
    same = (
        sum((Counter(golds) & Counter(guesses)).values())
        if overlap == "bag"
        else longest_run(golds, guesses)
    )
    return 2 * same / (len(golds) + len(guesses))  # = 2PR / (P + R), exact for integers


def longest_run(left: Sequence[str], right: Sequence[str]) -> int:
    """The number of tokens in the longest run that occurs in both."""
    best, before = 0, [0] * (len(right) + 1)
    for token in left:
        now = [0] + [
            before[index] + 1 if token == other else 0 for index, other in enumerate(right)
        ]
        best, before = max(best, *now), now
    return best


def score_v1(
    predictions: Sequence[Mapping[str, Any]], *, overlap: Overlap = "bag"
) -> dict[str, float]:
    """Version 1.1: `{"golds": [...], "guess": text or None}`; the best gold counts; a missing
    guess (None) counts 0.
    """
    n, shared = len(predictions) or 1, partial(f1, version=1, overlap=overlap)
    present = [p for p in predictions if p["guess"] is not None]
    return {
        "f1": (
            100
            * sum(max((shared(g, p["guess"]) for g in p["golds"]), default=0.0) for p in present)
            / n
        ),
        "exact": (
            100
            * sum(max((exact(g, p["guess"]) for g in p["golds"]), default=0.0) for p in present)
            / n
        ),
    }


def score_v2(
    predictions: Sequence[Mapping[str, Any]], *, threshold: float = 0.0, overlap: Overlap = "bag"
) -> dict[str, float]:
    """Version 2.0: `{"golds", "guess": best text, "null_odds"}`; the answer is empty where
    `null_odds > threshold`.

    A question with gold answers is answerable. Those that normalise to nothing are not compared
    with the guess; where no other is left, the empty text is. Missing guesses (None) are left out.
    `best_*` are the scores under the threshold that is best on these predictions.
    """
    present = [p for p in predictions if p["guess"] is not None]
    golds = [[g for g in p["golds"] if normalise(g)] or [""] for p in present]
    has_answer = [bool(p["golds"]) for p in present]
    odds = [float(p["null_odds"]) for p in present]
    scores: dict[str, float] = {}
    for name, metric in (("f1", partial(f1, overlap=overlap)), ("exact", exact)):
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
        best = best_threshold(raw, has_answer, [p["guess"] for p in present], odds)
        scores[f"best_{name}"], scores[f"best_{name}_threshold"] = best
    return scores


def best_threshold(
    raw: Sequence[float], has_answer: Sequence[bool], guesses: Sequence[str], odds: Sequence[float]
) -> tuple[float, float]:
    """(best score in percent, threshold): answers are admitted in the order of growing `odds`, the
    best prefix wins.

    Start from "everything is unanswerable"; an answerable question adds its raw score, an
    unanswerable one with a non-empty guess costs 1. The threshold is the odds of the last admitted
    question, 0.0 where admitting none is best.
    """
    current = best = float(sum(not has for has in has_answer))
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
