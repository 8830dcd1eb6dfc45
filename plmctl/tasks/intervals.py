"""How far the scores of a split would be other ones if other examples had been drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plmctl.tasks.base import Task
from plmctl.tasks.bundles import bundle_rows, score_bundles
from plmctl.tasks.resampling import ROOM, Score, Sums, find_forms

SAMPLES, LEVEL = 1000, 0.95  # as ROUGE-1.5.5 is run: -r 1000 -c 95
LEAST = 2  # predictions; one says nothing about others
Intervals = dict[str, tuple[float, float]]


def find_intervals(task: Task, rows: Sequence[Mapping[str, Any]], *, seed: int = 0) -> Intervals:
    """{metric: 95% interval} of the metrics of a task that are means over examples, or functions of
    sums over them; metrics that have to be computed anew of every draw have none.
    """
    kept = task.signatures  # of all rows, which scoring some of them would overwrite
    score: Score = task.score
    if any("bundle" in row for row in rows):
        rows, score = bundle_rows([dict(row) for row in rows]), score_bundles(score)
    found = bootstrap(rows, score, task.metrics, seed=seed) if len(rows) >= LEAST else {}
    task.signatures = kept
    return found


def bootstrap(
    rows: Sequence[Mapping[str, Any]], score: Score, names: Sequence[str], *, seed: int
) -> Intervals:
    """The percentiles that hold the middle 95% of the scores of 1,000 draws of as many rows, with
    replacement (Efron and Tibshirani, 1993, ch. 13; Lin, 2004, sec. 6).

    Args:
        seed: of the draws, which are the same for all metrics.
    """
    known, n, rng = score(rows), len(rows), np.random.default_rng(seed)
    forms = find_forms(rows, score, [name for name in names if name in known])
    drawn: dict[str, list[float]] = {
        name: [] for name, form in forms.items() if isinstance(form, Sums)
    }
    at_once = max(1, ROOM // n)
    for start in range(0, SAMPLES, at_once):
        picks = rng.integers(n, size=(min(at_once, SAMPLES - start), n))
        for name, values in drawn.items():
            values += forms[name](picks).tolist()
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    pairs = {name: np.quantile(values, tails).tolist() for name, values in drawn.items()}
    return {name: (low, high) for name, (low, high) in pairs.items()}
