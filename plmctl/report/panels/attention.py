"""Attention: maps of chosen heads on chosen sentences, only with `--attention`; and the share of
weights that are not 0, where weights may be 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from plmctl.analysis.attention import AttentionMaps, SparseHeads
from plmctl.analysis.sample import SENTENCES
from plmctl.core.errors import PlmctlError, UsageError
from plmctl.report.grids import draw_links
from plmctl.report.page import Block, Chart, Heading, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import ReportedRun, Subject

READING = (
    "Each token on the left attends to those on the right, the darker the line the more; layers and"
    " heads count from 0. With a pointer, one token at a time."
)
DENSITY = (
    "The share of the tokens in sight that have a weight, in percent, the darker the more; the mean"
    " over the tokens of the sentences that come with plmctl."
)
ALPHAS = "alpha of each head: near 1 it is as dense as softmax, 2 is sparsemax."


@panel_of(Subject, order=60, title="Attention")
def panel(subject: Subject) -> list[Block]:
    """Pictures of the chosen heads; UsageError for heads that none of the runs has."""
    if not subject.wishes.heads:
        return []
    blocks: list[Block] = [Paragraph(READING)]
    absent = []
    for number, run in enumerate(subject.detailed):
        try:
            blocks += [Heading(run.name, 3), *_draw_maps(subject, run, number)]
        except PlmctlError as error:
            blocks.append(Paragraph(f"Not drawn: {str(error).splitlines()[0]}."))
            absent += [error] if isinstance(error, UsageError) else []
    if absent and len(absent) == len(subject.detailed):
        raise absent[0]
    return blocks


def _draw_maps(subject: Subject, run: ReportedRun, number: int) -> list[Block]:
    maps = AttentionMaps.of(run.loaded, subject.wishes.sentences or SENTENCES[:2])
    blocks: list[Block] = []
    for place, (tokens, layers) in enumerate(zip(maps.tokens, maps.layers, strict=True)):
        _check(subject.wishes.heads, layers)
        for layer, head in subject.wishes.heads:
            title = f"Layer {layer}, head {head}"
            svg = draw_links(tokens, layers[layer][head].tolist(), title=title)
            blocks.append(Chart(f"attention-{number}-{place}-{layer}.{head}", svg))
    return blocks


def _check(heads: Sequence[tuple[int, int]], layers: Sequence[Tensor]) -> None:
    """Raise UsageError for a head that the model does not have."""
    for layer, head in heads:
        if not (0 <= layer < len(layers) and 0 <= head < len(layers[layer])):
            shape = f"{len(layers)} layers of {len(layers[0])} heads, counted from 0"
            raise UsageError(
                f"--attention {layer}.{head}: there is no such head; this model has {shape}"
            )


@panel_of(SparseHeads, order=63, title="Sparse attention")
def density(found: SparseHeads) -> list[Block]:
    """Tables of density and alpha by layer and head."""
    blocks: list[Block] = []
    if found.density:
        blocks += [Paragraph(DENSITY), _tabulate(found.density, "layer", 100.0, 0, shade=True)]
    if found.alphas:
        blocks += [Paragraph(ALPHAS), _tabulate(found.alphas, "cell", 1.0, 2)]
    return blocks


def _tabulate(
    rows: Sequence[Sequence[float]], name: str, factor: float, digits: int, *, shade: bool = False
) -> TableBlock:
    """A row for each layer, of numbers that are `factor` times as large."""
    lines = [
        [f"{name} {number}", *(f"{factor * value:.{digits}f}" for value in row)]
        for number, row in enumerate(rows, 1)
    ]
    heads = max(map(len, rows))
    shades = [[0.0, *row] for row in rows] if shade else ()
    return TableBlock(["", *(f"head {head}" for head in range(heads))], lines, shades)
