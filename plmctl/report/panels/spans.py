"""How far each head of a run's model has learned to look back, by layer and head."""

from __future__ import annotations

from plmctl.report.by_run import collect_by_run
from plmctl.report.chart import Curve, draw_lines
from plmctl.report.page import Block, Chart, Paragraph, TableBlock
from plmctl.report.subject import ReportedRun, Subject

ORDER = 62
READING = (
    "Tokens that a head looks back with full weight, the darker the longer; behind them its weight"
    " falls to 0 over {ramp:g} tokens, and no head can look back more than {longest:,}. The time of"
    " a layer follows its longest head."
)


def panel(subject: Subject) -> list[Block]:
    """A table of layers and heads and a curve for each run whose model has learned spans."""
    return collect_by_run(subject, "Spans of attention", _blocks)


def _blocks(run: ReportedRun, number: int) -> list[Block]:
    if "longest_span" not in run.log.series and "valid/longest_span" not in run.log.series:
        return []
    from plmctl.report.spans import measure_spans  # brings torch

    layers, longest, ramp = measure_spans(run.loaded)
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
    return [
        Paragraph(READING.format(ramp=ramp, longest=longest)),
        TableBlock(["", *(f"head {head}" for head in range(heads)), "mean"], rows, shade),
        Chart(f"spans-{number}", draw_lines(curves, title="Spans", x="layer", y="tokens")),
    ]
