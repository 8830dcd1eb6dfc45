"""Cross-validation by a sweep over `task.fold`: the mean over folds, and the score of all rows."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.analysis.likeness import find_examples, list_unlike_examples
from plmctl.analysis.runs import read_predictions
from plmctl.analysis.statistics import summarise
from plmctl.core.errors import DataError, PlmctlError, list_problems
from plmctl.core.terminal import counted
from plmctl.report.study_tables import format_spread
from plmctl.report.sweeps import FOLD, find_unit, find_value, list_varied, name_jobs
from plmctl.report.text import format_number
from plmctl.storage.gate import own
from plmctl.tasks.predictions import Row, beside, write_rows
from plmctl.tasks.scores.bundles import count_bundles, spell_bundles

FILE = "out_of_fold"  # in the folder of the sweep
Interval = tuple[float, float]


@dataclass(frozen=True)
class OutOfFold:
    """The predictions of the folds of one setting, in the order of the training examples.

    Args:
        score: The metric over all rows.
        interval: Its 95% interval over rows, or over bundles; None for a metric without one.
        rows: A row for each example, with the columns of its file.
        bundles: The number of their bundles; None for rows without bundles.
    """

    score: float
    interval: Interval | None
    rows: Sequence[Row]
    bundles: int | None = None

    @property
    def within(self) -> str:
        """` in 168 bundles`; "" for rows without bundles."""
        return spell_bundles(self.bundles)


@dataclass(frozen=True)
class FoldedSetting:
    """One setting of a sweep, with a run for each fold.

    Args:
        name: The settings that the sweep varies besides the fold; "" where it varies no other.
        metric: The metric that chooses checkpoints.
        larger: Whether a larger value of it is better.
        scores: The score of dev by fold.
        unit: `%` of a metric from 0 to 100, else "".
    """

    name: str
    metric: str
    larger: bool
    folds: int
    scores: Mapping[int, float]
    runs: Mapping[int, Path]
    unit: str = ""

    @property
    def mean(self) -> float:
        """The mean over folds."""
        return statistics.fmean(self.scores.values())

    @property
    def complete(self) -> bool:
        """Whether each fold has a run."""
        return len(self.scores) == self.folds

    @property
    def examples(self) -> tuple[int, Hashable]:
        """The number of examples of all folds, and a mark of exactly these."""
        found = [find_examples(run, "dev") for run in self.runs.values()]
        return sum(count for count, _ in found), tuple(own for _, own in found)

    def spell_mean(self) -> str:
        """`0.85 ± 0.02`: the mean, and the sample deviation over folds."""
        return f"{format_spread(*summarise(list(self.scores.values())))}{self.unit}"

    def spell_folds(self) -> str:
        """`3 folds`, or `2 of 3 folds`."""
        done = "" if self.complete else f"{len(self.scores)} of "
        return f"{done}{counted(self.folds, 'fold')}"

    def pool(self, plugins: Sequence[str] = ()) -> OutOfFold:
        """The predictions of all folds together; DataError where a row has none or several."""
        from plmctl.report.decided import read_task  # brings torch
        from plmctl.tasks.intervals import find_intervals

        folder = self.runs[min(self.runs)]
        task = read_task(folder, plugins)
        if task is None:
            raise DataError("its config.yaml names no task or no model", file=folder)
        examples = task.splits.whole().read("train")
        found = [
            (row["id"], {**row, "fold": fold})
            for fold, run in self.runs.items()
            for row in read_predictions(run).get("dev", ())
        ]
        by_id = dict(found)
        wanted = {example.id for example in examples}
        if len(wanted) < len(examples) or len(by_id) < len(found) or by_id.keys() != wanted:
            raise DataError("its folds do not predict every row once", file=task.splits.path)
        predictions = [by_id[example.id] for example in examples]
        path = task.splits.path
        source = str(path) if isinstance(path, (str, Path)) and Path(path).is_file() else None
        interval = find_intervals(task, predictions).get(self.metric)
        score = task.score(predictions)[self.metric]
        rows = beside(source, examples, predictions)
        return OutOfFold(score, interval, rows, count_bundles(predictions))


def find_folded(jobs: Sequence[dict[str, Any]]) -> list[FoldedSetting]:
    """The settings of the jobs of a sweep over folds, without jobs that failed; empty of other
    sweeps.
    """
    if FOLD not in list_varied(jobs):
        return []
    groups: dict[str, list[dict[str, Any]]] = {}
    for job, name in zip(jobs, name_jobs(jobs, without=(FOLD,)), strict=True):
        if not job.get("code") and (job.get("best") or [""])[0] in job["metrics"]:
            groups.setdefault(name, []).append(job)
    settings = list[FoldedSetting]()
    for name, group in groups.items():
        key, larger = group[0]["best"]
        by_fold = {int(find_value(job, FOLD)): job for job in group}
        scores = {fold: float(job["metrics"][key]) for fold, job in sorted(by_fold.items())}
        runs = {fold: Path(by_fold[fold]["dir"]) for fold in scores}
        folds = int(find_value(group[0], "task.folds"))
        metric = key.removeprefix("valid/")
        unit = find_unit(group[0], key)
        settings.append(FoldedSetting(name, metric, larger, folds, scores, runs, unit))
    return settings


def conclude_folds(
    jobs: Sequence[dict[str, Any]], folder: Path, plugins: Sequence[str] = ()
) -> list[str]:
    """A line for each setting of a sweep over folds, and one for the best setting; writes the
    out-of-fold predictions of each into `folder`.
    """
    settings, lines = find_folded(jobs), list[str]()
    for number, setting in enumerate(settings):
        mean = f"{setting.metric} {setting.spell_mean()} over {setting.spell_folds()}"
        line = f"{setting.name}: {mean}".removeprefix(": ")
        if not setting.complete:
            lines.append(f"{line}; the score of all rows together needs every fold")
            continue
        try:
            pooled = setting.pool(plugins)
        except PlmctlError as error:
            lines.append(f"{line}; no score of all rows together: {list_problems(error)}")
            continue
        end = f"-{number}" if len(settings) > 1 else ""
        file = write_rows(own(folder) / f"{FILE}{end}.jsonl", pooled.rows)
        all_rows = f"{pooled.score:.4g}{setting.unit}{spell_interval(pooled.interval)}"
        rows = f"{counted(len(pooled.rows), 'row')}{pooled.within}"
        lines.append(f"{line}; {all_rows} over all {rows}, each predicted once: {file}")
    complete = [setting for setting in settings if setting.complete]
    unlike = list_unlike_examples({each.name: each.examples for each in complete})
    lines += [f"no setting is the best: {line}" for line in unlike]
    if (
        not unlike
        and len(complete) > 1
        and len({(each.metric, each.folds) for each in complete}) == 1
    ):
        best = (max if complete[0].larger else min)(complete, key=lambda each: each.mean)
        lines.append(f"best mean over folds: {best.metric} {best.mean:.4g}{best.unit}: {best.name}")
    return lines


def spell_interval(interval: Interval | None) -> str:
    """` (95% interval 0.81 to 0.89)`; "" for None."""
    return f" (95% interval {' to '.join(map(format_number, interval))})" if interval else ""
