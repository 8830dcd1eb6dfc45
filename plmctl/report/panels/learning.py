"""Learning curves: the scores of the checkpoints of a run by their age."""

from __future__ import annotations

import re
from collections.abc import Sequence

from plmctl.analysis.statistics import summarise
from plmctl.core.terminal import counted
from plmctl.report.charts import draw_means
from plmctl.report.checkpoint_scores import CheckpointScore, CheckpointScores
from plmctl.report.page import Block, Chart, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.study_tables import format_spread

SHOWN = 3  # metrics; the sweep's own file has all
LEFT = "Not drawn, but in the table of the sweep (sweep.csv):"
BANDS = "Runs of other seeds share a curve, shaded from the lowest to the highest."


@panel_of(CheckpointScores, order=1, title="Learning curves", brief=True)
def panel(found: CheckpointScores) -> list[Block]:
    """A picture for each of the first metrics and each unit of age, and a table."""
    measured = list(dict.fromkeys(name for each in found.scores for name in each.metrics))
    metrics, blocks = measured[:SHOWN], list[Block]()
    if len(measured) > SHOWN:
        blocks.append(Paragraph(f"{', '.join(metrics)}. {LEFT} {', '.join(measured[SHOWN:])}."))
    if len({each.run for each in found.scores}) > len({each.group for each in found.scores}):
        blocks.append(Paragraph(BANDS))
    if found.superseded:
        left = (
            f"{counted(found.superseded, 'checkpoint')} of earlier versions of a study: left out."
        )
        blocks.append(Paragraph(left))
    for unit in dict.fromkeys(each.unit for each in found.scores):
        own = [each for each in found.scores if each.unit == unit]
        blocks += [_draw(own, unit, metric) for metric in metrics]
        blocks.append(_tabulate(own, unit, metrics))
    return blocks


def _draw(scores: Sequence[CheckpointScore], unit: str, metric: str) -> Chart:
    groups: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for each in sorted(scores, key=lambda each: each.age):
        if metric in each.metrics:
            curve = groups.setdefault(each.group, {}).setdefault(each.run, [])
            curve.append((each.age, each.age, each.metrics[metric]))
    drawn = {group: [*runs.values()] for group, runs in groups.items()}
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"learning-{metric}-{unit}")
    return Chart(name, draw_means(drawn, title=metric, x=unit, y=metric.rpartition("/")[2]))


def _tabulate(scores: Sequence[CheckpointScore], unit: str, metrics: Sequence[str]) -> TableBlock:
    cells: dict[tuple[str, int], list[CheckpointScore]] = {}
    for each in scores:
        cells.setdefault((each.group, each.age), []).append(each)
    order = {each.group: number for number, each in enumerate(scores)}
    rows = []
    for group, age in sorted(cells, key=lambda cell: (order[cell[0]], cell[1])):
        same = cells[group, age]
        values = [[each.metrics[name] for each in same if name in each.metrics] for name in metrics]
        rows.append([group, f"{age:,}", str(len(same)), *map(_spell, values)])
    return TableBlock(["run", unit, "n", *metrics], rows)


def _spell(values: Sequence[float]) -> str:
    """The mean of a score, with the deviation of several runs."""
    return format_spread(*summarise(values)) if values[1:] else f"{values[0]:.4f}" if values else ""
