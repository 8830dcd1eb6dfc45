"""Curves by layer: the rise of the loss when one matrix of a model has few bits."""

from __future__ import annotations

from collections.abc import Iterator

from plmctl.analysis.sensitivity import BitSensitivity
from plmctl.core.errors import PlmctlError, list_problems
from plmctl.report.charts import draw_lines
from plmctl.report.decided import read_task
from plmctl.report.page import Block, Chart, Folded, Heading, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import Subject

READING = (
    "One matrix at a time is rounded, with a scale for each of its rows, and all others stay in"
    " fp32. Curves show the rise of the loss by layer; dashed levels are matrices of no layer."
)
FIRST = 8  # matrices of the table that is not folded


@panel_of(Subject, order=61.7, title="Sensitivity to few bits")
def panel(subject: Subject) -> list[Block]:
    """For each run a chart for each number of bits, and a table, the most sensitive first."""
    blocks: list[Block] = [Paragraph(READING)] if subject.wishes.bits else []
    for number, run in enumerate(subject.detailed if subject.wishes.bits else ()):
        blocks.append(Heading(run.name, 3))
        try:
            task = read_task(run.folder, run.plugins)
            if task is None:
                blocks.append(Paragraph(f"{run.name}: not measured, it was not fine-tuned."))
                continue
            found = BitSensitivity.of(run.loaded, task, subject.wishes.bits)
        except PlmctlError as error:
            blocks.append(Paragraph(f"{run.name}: not measured, {list_problems(error)}."))
            continue
        blocks += [*_draw(found, number), *_tabulate(found)]
    return blocks


def _draw(found: BitSensitivity, number: int) -> Iterator[Block]:
    """A chart of the rise of the loss for each number of bits."""
    for index, bits in enumerate(found.bits):
        curves: dict[str, list[tuple[float, float]]] = {}
        marks: dict[str, float] = {}
        for own in found.matrices:
            rise = own.losses[index] - found.loss
            if own.layer:
                curves.setdefault(own.kind, []).append((float(own.layer), rise))
            else:
                marks[own.kind] = rise
        lines = draw_lines(
            curves, title=f"One matrix in {bits} bits", x="layer", y="rise of the loss", marks=marks
        )
        yield Chart(f"sensitivity-{bits}-{number}", lines)


def _tabulate(found: BitSensitivity) -> Iterator[Block]:
    """All matrices, by the rise of their loss with the fewest bits."""
    fewest = found.bits.index(min(found.bits))
    order = sorted(found.matrices, key=lambda own: -own.losses[fewest])
    head = ["matrix", "weights"]
    for bits in found.bits:
        head += [f"loss, {bits} bits", f"{found.metric}, {bits} bits"]
    rows = [
        [
            own.name,
            f"{own.weights:,}",
            *(
                text
                for loss, score in zip(own.losses, own.scores, strict=True)
                for text in (f"{loss - found.loss:+.3g}", f"{score - found.score:+.4f}")
            ),
        ]
        for own in order
    ]
    yield Paragraph(
        f"{found.examples:,} examples of {found.split}: loss {found.loss:.4f},"
        f" {found.metric} {found.score:.4f} in fp32. The table has differences to them."
    )
    yield TableBlock(head, rows[:FIRST])
    if rows[FIRST:]:
        yield Folded(f"{len(rows) - FIRST} more matrices", [TableBlock(head, rows[FIRST:])])
