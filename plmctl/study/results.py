"""The numbers of finished jobs: what each cell has of each metric, and what it cost."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError, nearest
from plmctl.jobs.job import RUN
from plmctl.jobs.journal import State
from plmctl.report.chart import Band, Curve
from plmctl.report.mean_curves import Run, along, band, mean_curve
from plmctl.report.runs import RunLog
from plmctl.study.plan import Cell, Plan
from plmctl.study.study import PRETRAIN, Metric


class Results:
    """What the jobs of a plan have left in their folders; a job that is not done has nothing."""

    def __init__(
        self, plan: Plan, states: Mapping[str, State], place: Callable[[str], Path]
    ) -> None:
        self.plan, self.states = plan, states
        self._log = cache(lambda name: RunLog.read(place(name) / RUN))
        self._scores = cache(
            lambda name: json.loads((place(name) / RUN / "result.json").read_text(encoding="utf-8"))
        )
        self.problems: list[str] = []  # metrics that an evaluation did not give

    def values(self, metric: Metric, arm: str) -> dict[int, float]:
        """{seed: value} of the cells of an arm that have one."""
        found = {cell.seed: self._value(metric, cell) for cell in self.cells(arm)}
        return {
            seed: math.exp(value) if metric.exp else value
            for seed, value in found.items()
            if value is not None
        }

    def cells(self, arm: str) -> list[Cell]:
        return [cell for cell in self.plan.cells if cell.arm == arm]

    def choice(self, cell: Cell, task: str) -> int | None:
        """The setting with the best mean on dev over its restarts, by the task's first metric;
        the first of equals.
        """
        means = {}
        for number, restarts in enumerate(cell.tuned[task]):
            if all(self._done(name) for name in restarts):
                first = self.plan.arms[cell.arm].tuned[task][number]["task"]["metrics"][0]
                means[number] = statistics.fmean(
                    self._scores(name)["metrics"]["dev"][first] for name in restarts
                )
        return max(means, key=lambda number: (means[number], -number), default=None)

    def curves(self, metric: Metric, by: str) -> dict[str, Curve]:
        """{arm: mean curve} of a metric of pretraining."""
        told = math.exp if metric.exp else float
        return {
            arm: [(x, told(y)) for x, y in mean_curve(self._runs(arm, metric, by))]
            for arm in self.plan.arms
        }

    def bands(self, metric: Metric, by: str) -> dict[str, Band]:
        """{arm: its lowest and highest curve}."""
        told = math.exp if metric.exp else float
        found = {arm: band(self._runs(arm, metric, by)) for arm in self.plan.arms}
        return {
            arm: [(x, told(low), told(high)) for x, low, high in each]
            for arm, each in found.items()
        }

    def cost(self, arm: str) -> dict[str, float | None]:
        """Means over the cells that are done: tokens and training FLOPs of pretraining, seconds
        of all training.
        """
        tokens, seconds = [], []
        for cell in self.cells(arm):
            tuned = [name for name in cell.jobs if name.startswith("finetune")]
            if cell.pretrain and self._done(cell.pretrain):
                tokens.append(self._last(cell.pretrain, "tokens"))
            if all(self._done(name) for name in cell.jobs):
                seconds.append(
                    sum(
                        self._last(name, "seconds")
                        for name in [*filter(None, [cell.pretrain]), *tuned]
                    )
                )
        rate = self.plan.arms[arm].flops_per_token
        mean = (
            statistics.fmean(tokens)
            if tokens
            else None
            if self.plan.arms[arm].arm.pretrain
            else 0.0
        )
        flops = None if mean is None else mean * rate
        return {
            "tokens": mean,
            "flops": flops,
            "seconds": statistics.fmean(seconds) if seconds else None,
        }

    def _runs(self, arm: str, metric: Metric, by: str) -> list[Run]:
        names = dict.fromkeys(
            cell.pretrain for cell in self.cells(arm) if cell.pretrain and self._done(cell.pretrain)
        )
        return [
            along(self._log(name), metric.series, by, self.plan.arms[arm].flops_per_token)
            for name in names
        ]

    def _value(self, metric: Metric, cell: Cell) -> float | None:
        if metric.of == PRETRAIN:
            return (
                self._last(cell.pretrain, metric.series)
                if cell.pretrain and self._done(cell.pretrain)
                else None
            )
        node = self.plan.study.evals.get(metric.of)
        owner = node.of if node else metric.of
        if owner == PRETRAIN:
            names = [cell.pretrain] if cell.pretrain else []
        else:
            chosen = self.choice(cell, owner)
            names = cell.tuned[owner][chosen] if chosen is not None else []
        if node:
            names = [
                cell.evals[metric.of][name]
                for name in names
                if name in cell.evals.get(metric.of, {})
            ]
        if not names or not all(self._done(name) for name in names):
            return None
        scores = [self._score(name, metric) for name in names]
        known = [score for score in scores if score is not None]
        return statistics.fmean(known) if len(known) == len(scores) else None

    def _score(self, name: str, metric: Metric) -> float | None:
        """Of the dev split, or of what an evaluation looked at."""
        splits = self._scores(name)["metrics"]
        scores: Mapping[str, Any] = splits.get("dev") or next(iter(splits.values()), {})
        if metric.key not in scores:
            self.problems.append(
                f"{metric.of} gives no '{metric.key}'{nearest(metric.key, scores)}:"
                f" {', '.join(scores)}"
            )
            return None
        return float(scores[metric.key])

    def _last(self, name: str, series: str) -> float:
        value = self._log(name).last(series)
        if value is None:
            has = (
                ", ".join(key for key in self._log(name).series if key.startswith("valid/"))
                or "no validation at all"
            )
            raise DataError(
                f"was never measured; there is {has}", file=f"{self._log(name).folder}: {series}"
            )
        return value

    def _done(self, name: str) -> bool:
        return self.states[name].kind == "done"


def missing(results: Results) -> list[dict[str, str]]:
    """The jobs that failed, were stopped early or have not run yet, with the cells that lack
    them; not what waits for these.
    """
    plan = results.plan
    behind = [(f"{cell.arm}, seed {cell.seed}", plan.behind(cell)) for cell in plan.cells]
    return [
        {
            "job": name,
            "label": plan.jobs[name].label,
            "state": state.kind,
            "why": state.why or "not run yet",
            "cells": "; ".join(cell for cell, jobs in behind if name in jobs),
        }
        for name, state in results.states.items()
        if state.kind not in ("done", "skipped")
    ]
