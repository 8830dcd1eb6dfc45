"""The scores of fine-tuned runs, every metric of every split."""

from __future__ import annotations

from plmctl.report.page import Block, Heading, TableBlock
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
    rows = [
        [*names, *(format_number(of.get(run.name)) for run in runs)] for names, of in values.items()
    ]
    return [
        Heading("Scores"),
        TableBlock(["task", "split", "metric", *(run.name for run in runs)], rows),
    ]
