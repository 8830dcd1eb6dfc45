"""The table and the picture of a compression: the score against latency and size."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from plmctl.compress.rung import LadderResult, Rung
from plmctl.compress.target import SURE, spell_amount
from plmctl.config.spec import Provenance
from plmctl.core.terminal import FAIL, print_parts, remark, tell
from plmctl.jobs.job import write_line
from plmctl.report.charts import draw_lines
from plmctl.report.page import Block, Chart, Heading, Paragraph, TableBlock, write_page


def show(outcome: LadderResult, given: Provenance) -> int:
    """Print the table and what came of it; returns the exit code."""
    if given.json:
        tell(json.dumps(outcome.to_json()))
    else:
        table = make_table(outcome)
        print_parts(table.head, table.rows)
    found = outcome.chosen or _find_predicted(outcome)
    lines = "".join(f"\n  {line}" for line in advise(outcome, given))
    said = describe(outcome) + (f"; nearer targets:{lines}" if lines and not found else "")
    remark(said, 20 if found else FAIL)
    return 0 if found else 1


def write(outcome: LadderResult, out: Path) -> Path:
    """Write `compress.md` and `compress.html` into a folder; returns the former."""
    blocks: list[Block] = [
        Heading(f"Compression of {outcome.metric}", 1),
        Paragraph(describe(outcome)),
        make_table(outcome),
        *_draw(outcome),
    ]
    write_page(blocks, out / "compress.md")
    return out / "compress.md"


def make_table(outcome: LadderResult) -> TableBlock:
    """The run and each rung."""
    rows = [_spell(outcome, rung) for rung in (outcome.run, *outcome.rungs)]
    return TableBlock.of_filled([*rows[0]], [[*row.values()] for row in rows])


def _spell(outcome: LadderResult, rung: Rung) -> dict[str, str]:
    """{column: cell} of a rung."""
    share, run, costs = outcome.share(rung), outcome.run.costs, rung.costs
    known = costs is not None and run is not None
    marks = {"chosen": rung is outcome.chosen, "reaches the target": outcome.meets(rung)}
    cells: dict[str, tuple[str, float | None]] = {
        outcome.metric: (".4f", rung.score),
        "kept": (".1%", share),
        "ms a row": (".3f", costs.latency if costs else None),
        "predicted": (".3f", rung.predicted.latency if rung.predicted else None),
        "times faster": (".1f", costs.faster if costs else None),
        "MB": (".2f", costs.size / 1e6 if costs else None),
        "times smaller": (".1f", costs.times_less("size", run) if costs and run else None),
        "MFLOPs a row": (".1f", costs.flops / 1e6 if costs else None),
        "parameters": (",", costs.parameters if costs else None),
        "MB of memory": (".1f", costs.memory / 1e6 if costs and costs.memory else None),
    }
    spelled = {name: "" if v is None else format(v, how) for name, (how, v) in cells.items()}
    said = next((name for name, holds in marks.items() if holds), "") if known else rung.refused
    return {"model": rung.name, "file": rung.form, **spelled, "remark": said}


def describe(outcome: LadderResult) -> str:
    """One line on the result."""
    if (chosen := outcome.chosen) is not None:
        return f"chosen: {chosen.name} ({chosen.form}): {_say(outcome, chosen)}"
    if (found := _find_predicted(outcome)) is not None:
        return f"predicted to reach the target: {found.name} ({found.form})"
    kept, met = outcome.nearest()
    lines = ["nothing reaches the target with the score"]
    if kept is not None:
        lines.append(f"the most with the score: {kept.name} ({kept.form}), {_say(outcome, kept)}")
    if met is not None:
        lines.append(f"the best score at the target: {met.name}, {_say(outcome, met)}")
    if met is None and outcome.rungs:
        most = max(outcome.rungs, key=outcome.reach)
        how = "is measured to need" if most.score is not None else "is predicted to need"
        lines.append(f"the smallest: {most.name} ({most.form}) {how} {_say(outcome, most)}")
    return "; ".join(lines)


def advise(outcome: LadderResult, given: Provenance) -> list[str]:
    """Command lines that reach less of the target, or keep less of the score; none where a model is
    chosen.
    """
    if outcome.chosen is not None or outcome.run.costs is None or not outcome.rungs:
        return []

    def write(word: str, what: str) -> str:
        key = word.partition("=")[0]
        words = [own for own in given.overrides if own.partition("=")[0] != key]
        how: Any = {"config_dirs": given.config_dirs, "plugins": given.plugins}
        return f"{write_line('compress', *words, word, **how)}  # as {what}"

    kept, met = outcome.nearest()
    lines = []
    if met is not None and (share := outcome.share(met) or 0) > 0:
        lines.append(write(f"keep={math.floor(1000 * share) / 1000:g}", met.name))
    smallest = None if met else max(outcome.rungs, key=outcome.reach)
    quantity = outcome.target.quantity
    for near in filter(None, dict.fromkeys((kept, smallest))):
        if near.costs is None:
            continue
        times = near.costs.times_less(quantity, outcome.run.costs)
        times /= 1.0 if near.score is not None else SURE  # it is measured again
        if (least := math.floor(10 * times) / 10) > 1:
            lines.append(write(f"target={quantity}:{least:g}x", near.name))
    return lines


def _say(outcome: LadderResult, rung: Rung) -> str:
    share, costs, target = outcome.share(rung), rung.costs, outcome.target
    said = [] if share is None else [f"{outcome.metric} {rung.score:.4f} ({share:.1%})"]
    if costs is not None and outcome.run.costs is not None:
        times = costs.times_less(target.quantity, outcome.run.costs)
        amount = spell_amount(target.quantity, costs.of(target.quantity))
        said.append(f"{target.quantity} {amount}, {times:.1f}x less")
    return ", ".join(said)


def _find_predicted(outcome: LadderResult) -> Rung | None:
    """The first rung that reaches the target, where no score is measured."""
    met = (rung for rung in outcome.rungs if rung.score is None and outcome.meets(rung))
    return next(met, None)


def _draw(outcome: LadderResult) -> list[Block]:
    """The score against latency, and against size."""
    pictures: list[Block] = []
    for name, x in (("latency", "milliseconds a row"), ("size", "bytes of the weights")):
        points = {
            f"{rung.name}, {rung.form}": [(rung.costs.of(name), rung.score)]
            for rung in (outcome.run, *outcome.rungs)
            if rung.costs is not None and rung.score is not None
        }
        marks = {}
        if outcome.run.score is not None:
            marks = {f"{outcome.keep:g} of the score": outcome.keep * outcome.run.score}
        title = f"{outcome.metric} against {name}"
        svg = draw_lines(points, title=title, x=x, y=outcome.metric, marks=marks)
        pictures.append(Chart(name, svg))
    return pictures
