"""Weights of attention that may be 0: alpha and density by layer and head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.report.by_run import collect_by_run
from plmctl.report.page import Block, Paragraph, TableBlock
from plmctl.report.subject import ReportedRun, Subject

ORDER = 63
DENSITY = (
    "The share of the tokens in sight that have a weight, in percent, the darker the more; the mean"
    " over the tokens of the sentences that come with plmctl."
)
ALPHAS = "alpha of each head: near 1 it is as dense as softmax, 2 is sparsemax."


def panel(subject: Subject) -> list[Block]:
    """Tables for each run whose attention has weights of its own."""
    return collect_by_run(subject, "Sparse attention", _blocks)


def _has_weights(node: Any) -> bool:
    """Whether a cell of a saved config names weights in place of softmax."""
    if not isinstance(node, Mapping):
        return False
    return bool(node.get("weights")) or any(map(_has_weights, node.values()))


def _blocks(run: ReportedRun, number: int) -> list[Block]:
    if not _has_weights(run.log.config.get("model")):
        return []
    from plmctl.report.density import list_alphas, measure_density  # brings torch

    density, alphas = measure_density(run.loaded), list_alphas(run.loaded)
    blocks: list[Block] = []
    if density:
        blocks += [Paragraph(DENSITY), _tabulate(density, "layer", [100.0, 0], shade=True)]
    if alphas:
        blocks += [Paragraph(ALPHAS), _tabulate(alphas, "cell", [1.0, 2])]
    return blocks


def _tabulate(
    rows: Sequence[Sequence[float]], name: str, form: Sequence[float], *, shade: bool = False
) -> TableBlock:
    """A row for each layer; `form`: the factor of the numbers, and their digits."""
    factor, digits = form[0], int(form[1])
    lines = [
        [f"{name} {number}", *(f"{factor * value:.{digits}f}" for value in row)]
        for number, row in enumerate(rows, 1)
    ]
    heads = max(map(len, rows))
    shades = [[0.0, *row] for row in rows] if shade else ()
    return TableBlock(["", *(f"head {head}" for head in range(heads))], lines, shades)
