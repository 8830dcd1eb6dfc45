"""Curves by layer: the change that each layer makes to its input, and the accuracy of probes."""

from __future__ import annotations

from plmctl.analysis.layers import LayerMoves
from plmctl.analysis.probing import ProbeResult, describe_rare, split_items
from plmctl.analysis.runs import Curve
from plmctl.core.errors import PlmctlError, list_problems
from plmctl.report.charts import draw_lines
from plmctl.report.page import Block, Chart, Heading, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import Subject
from plmctl.report.text import format_percent

KINDS = (
    ("distance", "Distance from input to output", "L2 distance"),
    ("angle", "Angle from input to output", "degrees"),
)
READING = (
    "Accuracy of a linear map from the frozen states of one layer (0: the embeddings) to the label,"
    " on held-out items. Majority: the most frequent label; by word: the label that the word has"
    " most often in training, which needs no context."
)
HEAD = ["run", "best layer", "which", "last layer", "majority", "by word"]
HEAD += ["classes", "train", "test"]


@panel_of(Subject, order=61, title="Changes by each layer")
def panel(subject: Subject) -> list[Block]:
    """A chart of distances and one of angles; a remark for a run without a model."""
    found: dict[str, LayerMoves] = {}
    notes = []
    for run in subject.detailed:
        try:
            found[run.name] = LayerMoves.of(run.loaded)
        except PlmctlError as error:
            notes.append(f"{run.name}: not measured, {list_problems(error)}.")
            continue
        checkpoint, own = run.loaded.source.folder.name, found[run.name]
        notes.append(f"{run.name}: {checkpoint}, {own.tokens:,} tokens of {own.about}.")
    blocks: list[Block] = [Paragraph(f"Means over the tokens of a text. {' '.join(notes)}")]
    for name, title, y in KINDS:
        curves: dict[str, Curve] = {
            run: [(float(layer), getattr(move, name)) for layer, move in enumerate(own.moves, 1)]
            for run, own in found.items()
        }
        if curves:
            blocks.append(Chart(f"layer_{name}", draw_lines(curves, title=title, x="layer", y=y)))
    return blocks


@panel_of(Subject, order=61.5, title="Probes")
def probes(subject: Subject) -> list[Block]:
    """For each set of labelled words a chart of accuracy by layer, and a table."""
    blocks: list[Block] = [Paragraph(READING)] if subject.wishes.probes else []
    for name, labels in subject.wishes.probes.items():
        curves: dict[str, Curve] = {}
        marks: dict[str, float] = {}
        rows, notes = [], []
        # an unreadable file of labels is the fault of no run, so it ends the report
        question = split_items(labels)
        notes += [rare] if (rare := describe_rare(question)) else []
        for run in subject.detailed:
            try:
                result = ProbeResult.of(run.loaded, question)
            except PlmctlError as error:
                notes.append(f"{run.name}: not probed, {list_problems(error)}.")
                continue
            curves[run.name] = [
                (float(layer), 100 * value) for layer, value in enumerate(result.accuracy)
            ]
            marks = {"majority": 100 * result.majority, "by word": 100 * result.by_word}
            rows.append([run.name, *_row(result)])
        blocks += [Heading(name, 3), *([Paragraph(" ".join(notes))] if notes else [])]
        if curves:
            svg = draw_lines(
                curves, title=f"Probe: {name}", x="layer", y="accuracy, %", marks=marks
            )
            blocks += [TableBlock(HEAD, rows), Chart(f"probe-{name}", svg)]
    return blocks


def _row(result: ProbeResult) -> list[str]:
    best = max(range(len(result.accuracy)), key=result.accuracy.__getitem__)
    shares = [
        format_percent(value) for value in (result.accuracy[-1], result.majority, result.by_word)
    ]
    return [
        format_percent(result.accuracy[best]),
        str(best),
        *shares,
        *map(str, (result.classes, result.train, result.test)),
    ]
