"""GLUE: a score for each task, the averages as published, and each task as a share of the human
baseline.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from plmctl.report import glue
from plmctl.report.bars import Level, draw_levels
from plmctl.report.glue import average_scores, read_scores
from plmctl.report.page import Block, Chart, Heading, Paragraph, TableBlock
from plmctl.report.subject import ReportedRun, Subject

ORDER = 41
READING = (
    "On dev, in percent; several runs of a task from one checkpoint are averaged. Average: over"
    " eight tasks, without WNLI, a task with two metrics by their mean (Wang et al., 2019); as in"
    " BERT's table 1: F1 of MRPC and QQP, Spearman of STS-B, MNLI's two sets apart (Devlin et al.,"
    " 2019). Published figures are of the test sets. People: Nangia and Bowman (2019)."
)

Scores = dict[str, dict[str, float]]


def panel(subject: Subject) -> list[Block]:
    """A table of tasks and averages, and for each checkpoint a picture of its scores."""
    groups = group_runs(subject.runs)
    if not groups:
        return []
    blocks: list[Block] = [Heading("GLUE"), Paragraph(READING), _table(groups)]
    for number, (name, scores) in enumerate(groups.items()):
        shares = [
            Level(task, 100 * value / statistics.fmean(glue.HUMAN[task].values()))
            for task in glue.HUMAN
            if (value := glue.score(task, scores.get(task, {}))) is not None
        ]
        if shares:
            title, people = f"Share of the human baseline, {name}", {"people": 100.0}
            svg = draw_levels(shares, title=title, x="% of people's score", marks=people, start=0)
            blocks.append(Chart(f"glue-{number}", svg))
    return blocks


def group_runs(runs: Sequence[ReportedRun]) -> dict[str, Scores]:
    """{checkpoint: {task: {metric: percent}}} of the runs on GLUE's tasks, means over runs of
    the same task and checkpoint.
    """
    by_start: dict[str, dict[str, list[dict[str, float]]]] = {}
    for run in runs:
        if run.result and run.task in glue.HUMAN:
            start = str(run.log.config.get("checkpoint") or "from scratch")
            by_start.setdefault(start, {}).setdefault(run.task, []).append(
                read_scores(run.result["metrics"], run.task)
            )
    return {
        start: {task: _means(each) for task, each in tasks.items()}
        for start, tasks in by_start.items()
    }


def _means(scores_of_runs: Sequence[dict[str, float]]) -> dict[str, float]:
    names = [name for name in scores_of_runs[0] if all(name in values for values in scores_of_runs)]
    return {name: statistics.fmean(values[name] for values in scores_of_runs) for name in names}


def _table(groups: dict[str, Scores]) -> TableBlock:
    rows = []
    for task, human in glue.HUMAN.items():
        cells = [_cell(task, scores.get(task, {})) for scores in groups.values()]
        if any(cells):
            rows.append([task, " / ".join(human), *cells, _cell(task, human)])
    for name, average in (
        ("average", average_scores),
        ("average as in BERT's table 1", glue.bert_average),
    ):
        rows.append(
            [
                name,
                "",
                *(_average(average, scores) for scores in groups.values()),
                _average(average, glue.HUMAN),
            ]
        )
    return TableBlock(["task", "metric", *groups, "people"], rows)


def _cell(task: str, values: Mapping[str, float]) -> str:
    return " / ".join(f"{values[name]:.1f}" for name in glue.HUMAN[task] if name in values)


def _average(average: Callable[[glue.Scores], float | None], scores: glue.Scores) -> str:
    value = average(scores)
    count = sum(glue.score(task, scores.get(task, {})) is not None for task in glue.COUNTED)
    return f"{count} of {len(glue.COUNTED)} tasks" if value is None else f"{value:.1f}"
