"""The table and the picture of a compression: the score against latency and size."""

from __future__ import annotations

import json
from pathlib import Path

from plmctl.compress.rung import LadderResult, Rung
from plmctl.core.terminal import FAIL, print_parts, remark, tell
from plmctl.report.charts import draw_lines
from plmctl.report.page import Block, Chart, Heading, Paragraph, TableBlock, write_page


def show(outcome: LadderResult, *, as_json: bool) -> int:
    """Print the table and what came of it; returns the exit code."""
    if as_json:
        tell(json.dumps(outcome.to_json()))
    else:
        head, rows = make_table(outcome)
        print_parts(head, rows)
    found = outcome.chosen or _find_predicted(outcome)
    remark(describe(outcome), FAIL if found is None else 20)
    return 0 if found else 1


def write(outcome: LadderResult, out: Path) -> Path:
    """Write `compress.md` and `compress.html` into a folder; returns the former."""
    head, rows = make_table(outcome)
    blocks: list[Block] = [
        Heading(f"Compression of {outcome.metric}", 1),
        Paragraph(describe(outcome)),
        TableBlock(head, rows),
        *_draw(outcome),
    ]
    write_page(blocks, out / "compress.md")
    return out / "compress.md"


def make_table(outcome: LadderResult) -> tuple[list[str], list[list[str]]]:
    """(head, rows): the run and each rung."""
    head = ["model", "file", outcome.metric, "kept", "ms a row", "faster", "MB", "smaller"]
    head += ["MFLOPs a row", "parameters", ""]
    return head, [_spell(outcome, rung) for rung in (outcome.run, *outcome.rungs)]


def _spell(outcome: LadderResult, rung: Rung) -> list[str]:
    share, run, costs = outcome.share(rung), outcome.run.costs, rung.costs
    score = "" if rung.score is None else f"{rung.score:.4f}"
    cells = [rung.name, rung.form, score, "" if share is None else f"{share:.1%}"]
    if costs is None or run is None:
        return [*cells, *[""] * 6, rung.refused]
    marks = ["chosen"] if rung is outcome.chosen else []
    marks += ["reaches the target"] if outcome.meets(rung) and not marks else []
    return [
        *cells,
        f"{costs.latency:.3f}",
        f"{costs.faster:.1f}x",
        f"{costs.size / 1e6:.2f}",
        f"{costs.times_less('size', run):.1f}x",
        f"{costs.flops / 1e6:.1f}",
        f"{costs.parameters:,}",
        *(marks or [""]),
    ]


def describe(outcome: LadderResult) -> str:
    """One line on what came of it."""
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
        lines.append(f"the most at all: {most.name} ({most.form}), {_say(outcome, most)}")
    return "; ".join(lines)


def _say(outcome: LadderResult, rung: Rung) -> str:
    share, costs = outcome.share(rung), rung.costs
    said = [] if share is None else [f"{outcome.metric} {rung.score:.4f} ({share:.1%})"]
    if costs is not None and outcome.run.costs is not None:
        quantity = outcome.target.quantity
        said.append(f"{quantity} {costs.times_less(quantity, outcome.run.costs):.1f}x less")
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
