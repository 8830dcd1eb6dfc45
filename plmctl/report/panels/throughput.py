"""The speed of training: tokens per second, the share of time that waits for data, and MFU."""

from __future__ import annotations

import statistics

from plmctl.analysis.runs import Curve
from plmctl.report.charts import draw_lines
from plmctl.report.page import Block, Chart, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import ReportedRun, Subject
from plmctl.report.text import format_number, format_percent

SHARES = {"data_wait": "data wait", "mfu": "MFU"}


@panel_of(Subject, order=80, title="Throughput")
def panel(subject: Subject) -> list[Block]:
    """A table of medians, and charts over the updates."""
    runs = [run for run in subject.runs if "tokens_per_second" in run.log.series]
    if not runs:
        return []
    blocks: list[Block] = [
        Paragraph(
            "Medians over the records after the first. MFU:"
            " share of the device's peak, on a CPU of a matrix product's."
        ),
        TableBlock(
            ["run", "tokens/s", "data wait", "MFU", "tokens", "hours"], [_row(run) for run in runs]
        ),
    ]
    speeds = {run.name: run.log.series["tokens_per_second"] for run in runs}
    shares: dict[str, Curve] = {
        f"{run.name}: {word}" if len(runs) > 1 else word: [
            (x, 100 * y) for x, y in run.log.series[name]
        ]
        for run in runs
        for name, word in SHARES.items()
        if name in run.log.series
    }
    blocks.append(
        Chart("throughput", draw_lines(speeds, title="Tokens a second", x="update", y="tokens/s"))
    )
    if shares:
        blocks.append(
            Chart("shares", draw_lines(shares, title="Data wait and MFU", x="update", y="%"))
        )
    return blocks


def _row(run: ReportedRun) -> list[str]:
    seconds = run.log.last("seconds")
    medians = [_median(run.log.series.get(name, ())) for name in ("tokens_per_second", *SHARES)]
    hours = "" if seconds is None else f"{seconds / 3600:.2f}"
    return [
        run.name,
        format_number(medians[0], 4),
        *map(format_percent, medians[1:]),
        format_number(run.log.last("tokens")),
        hours,
    ]


def _median(curve: Curve) -> float | None:
    values = [value for _, value in (curve[1:] if len(curve) > 1 else curve)]
    return statistics.median(values) if values else None
