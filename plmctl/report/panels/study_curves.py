"""Validation curves of a study by arm, averaged over the finished seeds."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.report.mean_curves import draw_means, read_curve
from plmctl.report.page import Block, Chart, Heading, Paragraph
from plmctl.report.runs import RunLog
from plmctl.report.subject import Subject

ORDER = 2


def panel(subject: Subject) -> list[Block]:
    """A chart for each validation loss that most arms have."""
    study = subject.study
    if study is None:
        return []
    by_arm: dict[str, list[RunLog]] = {}
    for job in study.jobs:
        if job.verb == "pretrain" and job.arm and job.log.series:
            by_arm.setdefault(job.arm, []).append(job.log)
    blocks: list[Block] = []
    for number, name in enumerate(_series(list(by_arm.values()))):
        groups = {}
        for arm, logs in by_arm.items():
            runs = [read_curve(log, name, "steps", 1.0) for log in logs if name in log.series]
            groups[f"{arm} ({len(runs)})" if len(runs) > 1 else arm] = runs
        svg = draw_means(groups, title=name, x="update", y=name)
        blocks.append(Chart(f"curves-{number}", svg))
    if not blocks:
        return []
    reading = (
        "Pretraining on the held-out documents: the mean, shaded from the lowest to the highest"
        " seed; in brackets the number of seeds. Arms that share a run share its curve."
    )
    return [Heading("Curves by arm"), Paragraph(reading), *blocks]


def _series(arms: Sequence[Sequence[RunLog]]) -> list[str]:
    """The validation losses that most arms have: the terms, or the total if there are none."""
    names = [name for logs in arms for name in dict.fromkeys(n for log in logs for n in log.series)]
    shared = [
        name
        for name in dict.fromkeys(names)
        if name.startswith("valid/loss/") and names.count(name) * 2 >= len(arms)
    ]
    has_total = any("valid/loss" in log.series for logs in arms for log in logs)
    return shared or (["valid/loss"] if has_total else [])
