"""The shares of sentences whose translation is the nearest of all, and of translations whose
sentence is (Reimers and Gurevych, 2020, arXiv:2004.09813, sec. 4; `TranslationEvaluator` of
sentence-transformers).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

PIECE = 1024  # sentences that are compared with all others at once

Row = Mapping[str, Any]


def match(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """([n], [n]) the number of the row of `second [n, W]` with the largest cosine for each row of
    `first [n, W]`, and the other way; of equal ones the first. A row of zeros has cosines of 0.
    """
    return _find_nearest(first, second), _find_nearest(second, first)


def _find_nearest(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    a, b = (each.astype(np.float64) for each in (first, second))
    lengths = np.linalg.norm(b, axis=1, keepdims=True)
    unit = b / np.where(lengths > 0, lengths, 1)  # the length of the other does not matter
    pieces = [a[start : start + PIECE] @ unit.T for start in range(0, len(a), PIECE)]
    return np.concatenate([piece.argmax(1) for piece in pieces]) if pieces else np.zeros(0, int)


def _finds_target(row: Row) -> float:
    return float(row["guess"] == row["gold"])


def _finds_source(row: Row) -> float:
    return float(row["back"] == row["gold"])


METRICS: Mapping[str, Callable[[Row], float]] = {
    "accuracy": lambda row: (_finds_target(row) + _finds_source(row)) / 2,
    "to_target": _finds_target,
    "to_source": _finds_source,
}


def score_matches(rows: Sequence[Row], names: Sequence[str]) -> dict[str, float]:
    """The mean of each metric over pairs. `gold` is the number of a pair, `guess` that of the
    nearest translation, and `back` that of the sentence nearest to its translation.
    """
    return {name: statistics.fmean(map(METRICS[name], rows)) if rows else 0.0 for name in names}
