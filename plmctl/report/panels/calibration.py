"""Whether guesses are as often right as their probabilities say."""

from __future__ import annotations

from plmctl.report.charts import draw_lines
from plmctl.report.examples import has_class_probabilities
from plmctl.report.page import Block, Chart, Paragraph
from plmctl.report.panel import panel_of
from plmctl.report.subject import SplitPredictions
from plmctl.report.text import format_percent
from plmctl.tasks.calibration import BINS, measure_calibration


@panel_of(SplitPredictions, order=54, title="Calibration")
def panel(found: SplitPredictions) -> list[Block]:
    """The expected calibration error, and a picture of it."""
    rows = found.rows
    if rows[0].get("gold") is None or not has_class_probabilities(rows[0]):
        return []
    error, bins = measure_calibration(rows)
    about = (
        f"Expected calibration error: {format_percent(error)}, of {len(rows):,} examples in"
        f" {BINS} intervals of the probability of the guess. Above the dashed line guesses are"
        " right more often than they say."
    )
    picture = draw_lines(
        {"share that is right": [(each.confidence, each.accuracy) for each in bins]},
        title=f"calibration of {found.run.name}, {found.split}",
        x="probability of the guess",
        y="share that is right",
        guides={"as they say": [(0.0, 0.0), (1.0, 1.0)]},
    )
    return [Paragraph(about), Chart(f"calibration-{found.run.name}-{found.split}", picture)]
