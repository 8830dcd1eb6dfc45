"""How far the scores of a split would be other ones if other examples had been drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from plmctl.core.terminal import counted
from plmctl.tasks.record import Predictions
from plmctl.tasks.scores.below import ONE_ANSWER, describe_one_answer
from plmctl.tasks.scores.bundles import (
    DRAWN,
    bundle_rows,
    count_bundles,
    remark_alone,
    remark_few,
    score_bundles,
)
from plmctl.tasks.scores.class_counts import ROOM
from plmctl.tasks.scores.labels import MACRO
from plmctl.tasks.scores.resampling import EQUAL, Form, Score, Sums, Whole, find_forms, move_back
from plmctl.tasks.task import Task

SAMPLES, LEVEL = 1000, 0.95  # as ROUGE-1.5.5 is run: -r 1000 -c 95
NORMAL = 1.959963984540054  # standard deviations that hold LEVEL on both sides
LEAST = 2  # predictions; one says nothing about others
Intervals = dict[str, tuple[float, float]]


def find_intervals(task: Task, rows: Predictions, *, seed: int = 0) -> Intervals:
    """{metric: 95% interval} of the metrics of a task that are means over examples or classes, or
    functions of sums over them; metrics that have to be computed anew of every draw have none.
    """
    kept = task.signatures  # the signatures of all rows, which scoring some of them would overwrite
    found = find_own_intervals(rows, task.score, task.metrics, seed=seed)
    task.signatures = kept
    return found


def find_own_intervals(
    rows: Predictions, score: Score, names: Sequence[str], *, seed: int = 0
) -> Intervals:
    """`find_intervals` of any score."""
    if any("bundle" in row for row in rows):
        rows, score = bundle_rows([dict(row) for row in rows]), score_bundles(score)
    return bootstrap(rows, score, names, seed=seed)


def describe_scores(task: Task, rows: Predictions) -> dict[str, str]:
    """Remarks on the scores of predictions: the bundles of their intervals, the rare classes in a
    mean over classes, and one answer to all.
    """
    classes = task.scores.describe_classes(rows, task.metrics) if task.scores else ""
    found = {"intervals": describe_bundled(rows), MACRO: classes}
    found[ONE_ANSWER] = describe_one_answer(rows)
    return {name: text for name, text in found.items() if text}


def describe_bundled(rows: Predictions) -> str:
    """The way in which intervals of scores are found where examples are in bundles; "" for rows
    without bundles.
    """
    bundles = count_bundles(rows)
    if bundles is None:
        return ""
    how = f"over {counted(bundles, 'bundle')}: {DRAWN}"
    return "; ".join(filter(None, (how, remark_alone(rows), remark_few(bundles))))


def bootstrap(rows: Predictions, score: Score, names: Sequence[str], *, seed: int = 0) -> Intervals:
    """The percentiles that hold the middle 95% of the scores of 1,000 draws of as many rows, with
    replacement (Efron and Tibshirani, 1993, ch. 13; Lin, 2004, sec. 6). A share of rows has the
    interval by `wilson`; a mean over classes has draws that `move_back` moves. A metric has
    no interval where all draws have one score, or where there is one row: nothing shows then what
    others would do.

    Args:
        seed: The seed of the draws, which are the same for all metrics.
    """
    if len(rows) < LEAST:
        return {}
    known, n, rng = score(rows), len(rows), np.random.default_rng(seed)
    forms = find_forms(rows, score, [name for name in names if name in known])
    found: Intervals = {}
    drawn: dict[str, tuple[Form, list[float]]] = {}
    for name, form in forms.items():
        if isinstance(form, Sums) and form.unit:
            low, high = wilson(float(form.parts[:, 0].sum()) / form.unit, n)
            found[name] = low * form.unit, high * form.unit
        elif not isinstance(form, Whole):
            drawn[name] = form, []
    at_once = max(1, ROOM // n)
    for start in range(0, SAMPLES if drawn else 0, at_once):
        picks = rng.integers(n, size=(min(at_once, SAMPLES - start), n))
        for form, values in drawn.values():
            values += form(picks).tolist()
    for name, (form, values) in drawn.items():
        moved = move_back(np.array(values), form, known[name])
        low, high = np.quantile(moved, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
        if high - low > EQUAL:
            found[name] = (max(low, 0.0), min(high, 1.0)) if form.drifts else (low, high)
    return {name: found[name] for name in forms if name in found}


def wilson(right: float, n: float) -> tuple[float, float]:
    """`(p + z^2/2n -+ z sqrt(p (1 - p) / n + z^2/4n^2)) / (1 + z^2/n)`, the interval of a share p =
    right / n, for few examples, too (Wilson, 1927).
    """
    p, z = right / n, NORMAL
    middle, below = p + z * z / (2 * n), 1 + z * z / n
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, (middle - half) / below), min(1.0, (middle + half) / below)
