"""How far each head of a run's model has learned to look back, by layer and head."""

from __future__ import annotations

from plmctl.analysis.runs import Curve
from plmctl.analysis.spans import HeadSpans, TokenSpans
from plmctl.report.charts import draw_lines
from plmctl.report.grids import TokenRow, draw_rows
from plmctl.report.page import Block, Chart, Paragraph, TableBlock
from plmctl.report.panel import panel_of

TOKENS = 96  # of a row that are drawn
READING = (
    "Tokens that a head looks back with full weight, the darker the longer; behind them its weight"
    " falls to 0 over {ramp:g} tokens, and no head can look back more than {longest:,}. The time of"
    " a layer follows its longest head."
)
BY_TOKEN = (
    " Each token has spans of its own: the table has their means, the boxes below the mean of all"
    " heads at each token of one row. These are {about}."
)


@panel_of(HeadSpans, order=62, title="Spans of attention")
def panel(found: HeadSpans) -> list[Block]:
    """A table of layers and heads, a curve, and where tokens have spans of their own a row."""
    layers, row = found.layers, found.row
    heads = max(map(len, layers))
    rows = [
        [f"layer {layer}", *(f"{span:.0f}" for span in spans), f"{sum(spans) / len(spans):.0f}"]
        for layer, spans in enumerate(layers, 1)
    ]
    most = max(1e-9, *(span for spans in layers for span in spans))
    shade = [[0.0, *(span / most for span in spans)] for spans in layers]
    curves: dict[str, Curve] = {
        "mean": [(float(n), sum(spans) / len(spans)) for n, spans in enumerate(layers, 1)],
        "longest": [(float(n), max(spans)) for n, spans in enumerate(layers, 1)],
    }
    reading = READING.format(ramp=found.ramp, longest=found.longest)
    return [
        Paragraph(reading + (BY_TOKEN.format(about=row.about) if row else "")),
        TableBlock(["", *(f"head {head}" for head in range(heads)), "mean"], rows, shade),
        Chart("spans", draw_lines(curves, title="Spans", x="layer", y="tokens")),
        *([Chart("spans-by-token", _draw_tokens(row))] if row else []),
    ]


def _draw_tokens(row: TokenSpans) -> str:
    """A box for each token, the darker the longer its span."""
    spans = row.spans[:TOKENS]
    most = max(1e-9, *spans)
    cut = f"The first {TOKENS} tokens" if len(row.spans) > TOKENS else "All tokens"
    drawn = TokenRow(
        f"{cut} of a row",
        row.tokens[:TOKENS],
        [f"{span:.0f}" for span in spans],
        [span / most for span in spans],
    )
    return draw_rows([drawn], title="Spans by token")
