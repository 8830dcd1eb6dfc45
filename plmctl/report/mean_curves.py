"""Learning curves of all arms in one picture, over updates, tokens, training FLOPs or time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from plmctl.report.chart import Band, Curve, draw_lines
from plmctl.report.runs import RunLog

Run = Sequence[tuple[float, float, float]]  # (update, x, value)
AXES = {"steps": "updates", "tokens": "tokens", "flops": "training FLOPs", "time": "seconds"}


def read_curve(
    log: RunLog, name: str, by: str, flops_per_token: float
) -> list[tuple[float, float, float]]:
    """(update, x, value) of a metric; x between two records of the counters is on the line
    between them.
    """
    counter = {"tokens": "tokens", "flops": "tokens", "time": "seconds"}.get(by)
    scale = flops_per_token if by == "flops" else 1.0
    found = []
    for step, value in log.series.get(name, ()):
        x = step if counter is None else _between(log.series.get(counter, ()), step)
        found.append((step, x * scale, value))
    return found


def average_curves(runs: Sequence[Run]) -> Curve:
    """The mean over seeds, at the updates at which all of them were measured."""
    return [(x, statistics.fmean(values)) for x, values in _at_each_step(runs)]


def bound_curves(runs: Sequence[Run]) -> Band:
    """The lowest and the highest value of all seeds, at the same updates; nothing of a single
    run.
    """
    return (
        [(x, min(values), max(values)) for x, values in _at_each_step(runs)]
        if len(runs) > 1
        else []
    )


def draw_curves(
    curves: Mapping[str, Curve], bands: Mapping[str, Band], *, metric: str, by: str, seeds: int
) -> str:
    """One SVG, one line an arm."""
    shown = {name: curve for name, curve in curves.items() if curve}
    title = f"{metric}, mean of {seeds} seeds" + (
        ", shaded from lowest to highest" if any(bands.values()) else ""
    )
    return draw_lines(shown, title=title, x=AXES[by], y=metric, bands=bands)


def _at_each_step(runs: Sequence[Run]) -> list[tuple[float, list[float]]]:
    """(mean of x, values) at the updates at which all runs were measured."""
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
