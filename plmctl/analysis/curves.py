"""Learning curves of repeated runs, over updates, tokens, training FLOPs or time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from plmctl.analysis.runs import Curve, RunLog

Run = Sequence[tuple[float, float, float]]  # (update, x, value)
AXES = {"steps": "updates", "tokens": "tokens", "flops": "training FLOPs", "time": "seconds"}


def read_curve(
    log: RunLog, name: str, by: str, flops_per_token: float
) -> list[tuple[float, float, float]]:
    """(update, x, value) of a metric; between two records of the counter, x is interpolated
    linearly.
    """
    counter = {"tokens": "tokens", "flops": "tokens", "time": "seconds"}.get(by)
    scale = flops_per_token if by == "flops" else 1.0
    points = []
    for step, value in log.series.get(name, ()):
        x = step if counter is None else _between(log.series.get(counter, ()), step)
        points.append((step, x * scale, value))
    return points


def average_curves(runs: Sequence[Run]) -> Curve:
    """The mean over seeds, at the updates where every seed has a value."""
    return [(x, statistics.fmean(values)) for x, values in list_common_steps(runs)]


def list_common_steps(runs: Sequence[Run]) -> list[tuple[float, list[float]]]:
    """(mean of x, values) at the updates where every run has a value."""
    by_step = [{step: (x, value) for step, x, value in run} for run in runs]
    steps = sorted(set.intersection(*(set(points) for points in by_step))) if runs else []
    return [
        (statistics.fmean(p[step][0] for p in by_step), [p[step][1] for p in by_step])
        for step in steps
    ]


def _between(counter: Curve, step: float) -> float:
    """The counter at an update, linear between its records, from 0 at the start."""
    before = (0.0, 0.0)
    for at, value in counter:
        if at >= step:
            return (
                before[1] + (value - before[1]) * (step - before[0]) / (at - before[0])
                if at > before[0]
                else value
            )
        before = (at, value)
    return before[1]
