"""The change that each layer makes to its input, one curve for each run."""

from __future__ import annotations

from plmctl.analysis.layers import LayerMoves
from plmctl.analysis.runs import Curve
from plmctl.analysis.sample import SENTENCES
from plmctl.core.errors import PlmctlError
from plmctl.report.charts import draw_lines
from plmctl.report.page import Block, Chart, Paragraph
from plmctl.report.panel import panel_of
from plmctl.report.subject import Subject

KINDS = (
    ("distance", "Distance between a layer's input and output", "L2 distance"),
    ("angle", "Angle between a layer's input and output", "degrees"),
)


@panel_of(Subject, order=61, title="What each layer changes")
def panel(subject: Subject) -> list[Block]:
    """A chart of distances and one of angles; a remark for a run without a model."""
    found: dict[str, LayerMoves] = {}
    notes = []
    for run in subject.detailed:
        try:
            found[run.name] = LayerMoves.of(run.loaded)
        except PlmctlError as error:
            notes.append(f"{run.name}: not measured, {str(error).splitlines()[0]}.")
            continue
        checkpoint, tokens = run.loaded.source.folder.name, found[run.name].tokens
        notes.append(f"{run.name}: {checkpoint}, {tokens} tokens.")
    text = (
        f"Means over the tokens of {len(SENTENCES)} English sentences that come with plmctl."
        f" {' '.join(notes)}"
    )
    blocks: list[Block] = [Paragraph(text)]
    for name, title, y in KINDS:
        curves: dict[str, Curve] = {
            run: [(float(layer), getattr(move, name)) for layer, move in enumerate(own.moves, 1)]
            for run, own in found.items()
        }
        if curves:
            blocks.append(Chart(f"layer_{name}", draw_lines(curves, title=title, x="layer", y=y)))
    return blocks
