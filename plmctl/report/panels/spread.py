"""The spread of scores between seeds by the size of the training set: small sets have a large one
(Devlin et al., 2019, sec. 4.1; Dodge et al., 2020, arXiv:2002.06305).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from plmctl.report.charts import Band, draw_lines
from plmctl.report.page import Block, Chart, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import ReportedRun, Subject
from plmctl.report.text import format_percent

READING = (
    "Fine-tunings with several seeds (seed=0,1,2), each trained on a share of the examples"
    " (train.share). Bands reach from the lowest to the highest seed; the deviation is that of"
    " single seeds."
)
HEAD = ["task", "checkpoint", "share", "seeds", "mean", "deviation", "lowest", "highest"]
# {(task, metric, start, examples of dev): {share: scores}}
Spread = dict[tuple[str, str, str, Any], dict[float, list[float]]]


@panel_of(Subject, order=12.5, title="Spread by size of the training set")
def panel(subject: Subject) -> list[Block]:
    """For each task and checkpoint a picture of means and one of deviations, and a table."""
    found = collect_scores(subject.runs)
    pictures: list[Block] = []
    rows = []
    for number, ((task, metric, start, _), shares) in enumerate(found.items()):
        means = [(share, statistics.fmean(values)) for share, values in shares.items()]
        band: Band = [(share, min(values), max(values)) for share, values in shares.items()]
        spread = [
            (share, statistics.stdev(values)) for share, values in shares.items() if values[1:]
        ]
        title = f"{task} of {start}"
        drawn = {
            "mean": draw_lines(
                {metric: means}, title=title, x="share", y=metric, bands={metric: band}
            ),
            "deviation": draw_lines({metric: spread}, title=title, x="share", y="deviation"),
        }
        pictures += [Chart(f"spread-{number}-{name}", svg) for name, svg in drawn.items()]
        for share, values in shares.items():
            numbers = [statistics.fmean(values), statistics.stdev(values) if values[1:] else None]
            numbers += [min(values), max(values)]
            cells = ["" if value is None else f"{value:.4f}" for value in numbers]
            rows.append([task, start, format_percent(share), str(len(values)), *cells])
    return [Paragraph(READING), *pictures, TableBlock(HEAD, rows)] if found else []


def collect_scores(runs: Sequence[ReportedRun]) -> Spread:
    """{(task, first metric, checkpoint and other settings of a sweep, examples of dev): {share of
    the training examples: scores on dev}}, where there are two shares or more and one has several
    seeds.
    """
    found: Spread = {}
    for run in runs:
        metric = next(iter((run.log.config.get("task") or {}).get("metrics") or ()), "")
        score = ((run.result or {}).get("metrics") or {}).get("dev", {}).get(metric)
        if score is not None:
            share = float((run.log.config.get("train") or {}).get("share", 1.0))
            varied = [word for word in (run.group or "").split() if "=" in word]
            others = [word for word in varied if not word.startswith("train.share=")]
            start = " ".join([str(run.log.config.get("checkpoint") or "from scratch"), *others])
            own = found.setdefault((run.task, run.spell(metric), start, run.examples["dev"]), {})
            own.setdefault(share, []).append(score)
    return {
        key: dict(sorted(shares.items()))
        for key, shares in found.items()
        if len(shares) > 1 and max(map(len, shares.values())) > 1
    }
