"""How far each head of a run's model has learned to look back, by layer and head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plmctl.report.by_run import collect_by_run
from plmctl.report.chart import Curve, draw_lines
from plmctl.report.grids import TokenRow, draw_rows
from plmctl.report.page import Block, Chart, Paragraph, TableBlock
from plmctl.report.subject import ReportedRun, Subject

if TYPE_CHECKING:
    from plmctl.report.spans import TokenSpans

ORDER = 62
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


def panel(subject: Subject) -> list[Block]:
    """A table of layers and heads, a curve, and where they have spans of their own the tokens of a
    row, for each run whose model has learned spans.
    """
    return collect_by_run(subject, "Spans of attention", _blocks)


def _blocks(run: ReportedRun, number: int) -> list[Block]:
    if "longest_span" not in run.log.series and "valid/longest_span" not in run.log.series:
        return []
    from plmctl.report.spans import measure_spans  # brings torch

    found = measure_spans(run.loaded)
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
        Chart(f"spans-{number}", draw_lines(curves, title="Spans", x="layer", y="tokens")),
        *([Chart(f"spans-by-token-{number}", _draw_tokens(row))] if row else []),
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
