"""The change that each layer makes to its input, one curve for each run."""

from __future__ import annotations

from plmctl.core.errors import PlmctlError
from plmctl.report.chart import Curve, draw_lines
from plmctl.report.page import Block, Chart, Heading, Paragraph
from plmctl.report.subject import Subject

ORDER = 61
KINDS = (
    ("distance", "Distance between a layer's input and output", "L2 distance"),
    ("angle", "Angle between a layer's input and output", "degrees"),
)


def panel(subject: Subject) -> list[Block]:
    """A chart of distances and one of angles; a remark for a run without a model."""
    if not subject.runs:
        return []
    # brings torch, which whoever reads logs does not need
    from plmctl.report.layers import Move, measure_layers
    from plmctl.report.sentences import SENTENCES

    moves: dict[str, list[Move]] = {}
    notes = []
    for run in subject.detailed:
        try:
            moves[run.name], tokens = measure_layers(run.loaded)
        except PlmctlError as error:
            notes.append(f"{run.name}: not measured, {str(error).splitlines()[0]}.")
            continue
        notes.append(f"{run.name}: {run.loaded.source.folder.name}, {tokens} tokens.")
    text = (
        f"Means over the tokens of {len(SENTENCES)} English sentences that come with plmctl."
        f" {' '.join(notes)}"
    )
    blocks: list[Block] = [Heading("What each layer changes"), Paragraph(text)]
    for name, title, y in KINDS:
        curves: dict[str, Curve] = {
            run: [(float(layer), getattr(move, name)) for layer, move in enumerate(layers, 1)]
            for run, layers in moves.items()
        }
        if curves:
            blocks.append(Chart(f"layer_{name}", draw_lines(curves, title=title, x="layer", y=y)))
    return blocks
