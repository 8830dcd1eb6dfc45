"""Benchmarks: a score for each task, the averages as published, and each task as a share of the
human baseline.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from plmctl.report.benchmarks import GLUE, SUPERGLUE, Benchmark, Scores
from plmctl.report.charts import Level, draw_levels
from plmctl.report.page import Block, Chart, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import ReportedRun, Subject

Groups = dict[str, dict[str, dict[str, float]]]  # checkpoint: {task: {metric: percent}}


@panel_of(Subject, order=41, title=GLUE.name)
def glue(subject: Subject) -> list[Block]:
    """A table of tasks and averages, and for each checkpoint a picture of its scores."""
    return _show(GLUE, subject.runs)


@panel_of(Subject, order=42, title=SUPERGLUE.name)
def superglue(subject: Subject) -> list[Block]:
    """A table of tasks with their average, and for each checkpoint a picture of its scores."""
    return _show(SUPERGLUE, subject.runs)


def _show(benchmark: Benchmark, runs: Sequence[ReportedRun]) -> list[Block]:
    """The blocks; none where no run is on one of the tasks."""
    groups = group_runs(benchmark, runs)
    if not groups:
        return []
    blocks: list[Block] = [Paragraph(benchmark.reading), _table(benchmark, groups)]
    for number, (start, scores) in enumerate(groups.items()):
        shares = [
            Level(task, 100 * value / statistics.fmean(people.values()))
            for task, people in benchmark.people.items()
            if (value := benchmark.score(task, scores.get(task, {}))) is not None
        ]
        if shares:
            title, marks = f"Share of the human baseline, {start}", {"people": 100.0}
            svg = draw_levels(shares, title=title, x="% of people's score", marks=marks, start=0)
            blocks.append(Chart(f"{benchmark.name.lower()}-{number}", svg))
    return blocks


def group_runs(benchmark: Benchmark, runs: Sequence[ReportedRun]) -> Groups:
    """The scores of the runs on the tasks of a benchmark, means over runs of the same task and
    checkpoint.
    """
    by_start: dict[str, dict[str, list[dict[str, float]]]] = {}
    for run in runs:
        if run.result and run.task in benchmark.people:
            start = str(run.log.config.get("checkpoint") or "from scratch")
            by_start.setdefault(start, {}).setdefault(run.task, []).append(
                benchmark.read_scores(run.result["metrics"], run.task)
            )
    return {
        start: {task: _means(each) for task, each in tasks.items()}
        for start, tasks in by_start.items()
    }


def _means(scores_of_runs: Sequence[dict[str, float]]) -> dict[str, float]:
    names = [name for name in scores_of_runs[0] if all(name in values for values in scores_of_runs)]
    return {name: statistics.fmean(values[name] for values in scores_of_runs) for name in names}


def _table(benchmark: Benchmark, groups: Groups) -> TableBlock:
    columns: list[Scores] = [*groups.values(), benchmark.people]
    rows = []
    for task, people in benchmark.people.items():
        cells = [_cell(benchmark, task, scores) for scores in columns]
        if any(cells[:-1]):
            rows.append([task, " / ".join(people), *cells])
    for name, average in {"average": benchmark.average_scores, **benchmark.also}.items():
        cells = [_average(benchmark, average(scores), scores) for scores in columns]
        rows.append([name, "", *cells])
    return TableBlock(["task", "metric", *groups, "people"], rows)


def _cell(benchmark: Benchmark, task: str, scores: Scores) -> str:
    values = scores.get(task, {})
    return " / ".join(f"{values[name]:.1f}" for name in benchmark.people[task] if name in values)


def _average(benchmark: Benchmark, value: float | None, scores: Scores) -> str:
    counted = benchmark.counted
    there = sum(benchmark.score(task, scores.get(task, {})) is not None for task in counted)
    return f"{there} of {len(counted)} tasks" if value is None else f"{value:.1f}"
