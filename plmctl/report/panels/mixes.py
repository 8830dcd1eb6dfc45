"""The layers that a head reads: the learned weights of its scalar mix (Peters et al., 2018)."""

from __future__ import annotations

from plmctl.analysis.mixes import LayerMixes
from plmctl.analysis.runs import Curve
from plmctl.report.charts import draw_lines
from plmctl.report.page import Block, Chart, Paragraph, TableBlock
from plmctl.report.panel import panel_of

READING = (
    "The share of each layer (0: the embeddings) in what the head reads, after softmax, and the"
    " learned scale of the sum. Before training all shares are equal."
)


@panel_of(LayerMixes, order=61.2, title="Weights of layers")
def panel(found: LayerMixes) -> list[Block]:
    """A table of shares by layer, a column a mix, and a curve for each mix."""
    layers = sorted({layer for shares in found.weights.values() for layer in shares})
    rows = [
        [f"layer {layer}", *(_share(shares.get(layer)) for shares in found.weights.values())]
        for layer in layers
    ]
    shade = [
        [0.0, *(shares.get(layer, 0.0) for shares in found.weights.values())] for layer in layers
    ]
    rows.append(["scale", *(f"{scale:.3f}" for scale in found.scales.values())])
    shade.append([0.0] * (1 + len(found.scales)))
    curves: dict[str, Curve] = {
        name: [(float(layer), share) for layer, share in sorted(shares.items())]
        for name, shares in found.weights.items()
    }
    marks = {"equal shares": 1 / len(layers)} if _are_alike(found, layers) else {}
    chart = draw_lines(curves, title="Weights of layers", x="layer", y="share", marks=marks)
    return [
        Paragraph(READING),
        TableBlock(["", *found.weights], rows, shade),
        Chart("mixes", chart),
    ]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _are_alike(found: LayerMixes, layers: list[int]) -> bool:
    return all(len(shares) == len(layers) for shares in found.weights.values())
