"""Scores of sets of types: strict accuracy, loose macro and loose micro averages (Ling and Weld,
2012, "Fine-Grained Entity Recognition", sec. 5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

Types = Sequence[str]
NAMES = (
    "strict", "precision", "recall", "f1", "macro_precision", "macro_recall", "macro_f1",
)  # fmt: skip


def score_types(gold: Sequence[Types], guess: Sequence[Types]) -> Mapping[str, float]:
    """All scores by name.

    strict: the share of mentions whose set is exactly right. Loose micro, the names without
    prefix: shared types by all guessed ones and by all gold ones. Loose macro: the mean over
    mentions of these shares, where a mention without guesses (or gold types) adds 0.
    """
    sets = [(set(g), set(p)) for g, p in zip(gold, guess, strict=True)]
    shared = [len(g & p) for g, p in sets]
    by_mention = [
        (common / len(p) if p else 0.0, common / len(g) if g else 0.0)
        for common, (g, p) in zip(shared, sets, strict=True)
    ]
    count = max(1, len(sets))
    macro = [math.fsum(column) / count for column in zip(*by_mention, strict=True)] or [0.0, 0.0]
    guessed, present = (sum(len(pair[side]) for pair in sets) for side in (1, 0))
    micro = (sum(shared) / guessed if guessed else 0.0, sum(shared) / present if present else 0.0)
    strict = sum(g == p for g, p in sets) / count
    values = (strict, *micro, _f1(*micro), *macro, _f1(*macro))
    return dict(zip(NAMES, values, strict=True))


def find_threshold(
    gold: Sequence[Types], probabilities: Sequence[Mapping[str, float]]
) -> tuple[float, float]:
    """(the threshold of probabilities whose guesses have the best loose micro F1, that F1); the
    highest of several.
    """
    size, golds = sum(map(len, probabilities)), [set(own) for own in gold]
    values = (p for each in probabilities for p in each.values())
    known = (name in own for own, each in zip(golds, probabilities, strict=True) for name in each)
    p, right = np.fromiter(values, float, size), np.fromiter(known, bool, size)
    order = np.argsort(-p, kind="stable")
    p, hits = p[order], np.cumsum(right[order])
    below = np.append(p[1:], 0.0)
    f1 = 2 * hits / (np.arange(1, size + 1) + sum(map(len, golds)))
    f1[:-1][p[1:] == p[:-1]] = 0.0  # equal ones are guessed together
    if not f1.any():
        return 1.0, 0.0
    best = int(f1.argmax())
    return float((p[best] + below[best]) / 2), float(f1[best])


def _f1(precision: float, recall: float) -> float:
    both = precision + recall
    return 2 * precision * recall / both if both else 0.0
