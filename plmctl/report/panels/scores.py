"""The scores of fine-tuned runs, every metric of every split."""

from __future__ import annotations

from plmctl.report.page import Block, Heading, Paragraph, TableBlock
from plmctl.report.subject import Subject
from plmctl.report.text import format_number

ORDER = 40


def panel(subject: Subject) -> list[Block]:
    """A row for each metric, a column for each run."""
    runs = [run for run in subject.runs if run.result]
    values: dict[tuple[str, str, str], dict[str, float]] = {}
    for run in runs:
        for split, scores in (run.result or {})["metrics"].items():
            for metric, value in scores.items():
                values.setdefault((run.task, split, metric), {})[run.name] = value
    if not values:
        return []
    simple: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for run in runs:
        for split, models in run.baselines.items():
            for name, scores in models.items():
                for metric, value in scores.items():
                    simple.setdefault((run.task, split, name, metric), {})[run.name] = value
    rows = [
        [*names, *(format_number(of.get(run.name)) for run in runs)] for names, of in values.items()
    ]
    names = [run.name for run in runs]
    without: list[Block] = [
        Paragraph("Models without pretraining, of the same examples:"),
        TableBlock(
            ["task", "split", "model", "metric", *names],
            [
                [*of, *(format_number(own.get(name)) for name in names)]
                for of, own in simple.items()
            ],
        ),
    ]
    return [
        Heading("Scores"),
        TableBlock(["task", "split", "metric", *names], rows),
        *(without if simple else []),
    ]
