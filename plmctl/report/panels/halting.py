"""How many layers each token took, where tokens decide it themselves."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.analysis.halting import LayersTaken, TokenLayers
from plmctl.analysis.runs import Curve
from plmctl.report.charts import draw_lines
from plmctl.report.grids import TokenRow, draw_rows
from plmctl.report.page import Block, Chart, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.text import format_percent

ROWS, TOKENS = 2, 48  # rows, and tokens of each sequence, that are drawn
BELOW = "the number of layers"
SCALE = ("few layers", "all of them")
READING = (
    "The number below each token is the number of layers after which its state is final, the darker"
    " the more; {most} at most. These are {about}."
)
TARGET = " A token of the target stands for the state that predicts it."
POSITIONS = "Layers by position"


@panel_of(TokenLayers, order=66, title="Layers of each token")
def panel(measured: TokenLayers) -> list[Block]:
    """Tokens, a curve and a table."""
    found = measured.seqs
    most = max(layers.most for layers in found)
    text = READING.format(most=most, about=measured.about)
    text += TARGET if any(layers.seq == "target" for layers in found) else ""
    curves: dict[str, Curve] = {
        layers.seq: [(float(n), mean) for n, mean in enumerate(layers.by_position())]
        for layers in found
    }
    lines = draw_lines(curves, title=POSITIONS, x="position", y="layers, mean")
    return [
        Paragraph(text),
        Chart(
            "halting",
            draw_rows(_rows(found), title="Layers of each token", below=BELOW, scale=SCALE),
        ),
        Chart("halting-by-position", lines),
        _tabulate(found),
    ]


def _rows(found: Sequence[LayersTaken]) -> list[TokenRow]:
    rows = []
    darkest = max(number for layers in found for row in layers.taken for number in row)
    for place in range(ROWS):
        for layers in found:
            if place < len(layers.tokens):
                taken = layers.taken[place][:TOKENS]
                cut = f", the first {TOKENS} tokens" if len(layers.taken[place]) > TOKENS else ""
                rows.append(
                    TokenRow(
                        f"{layers.seq.capitalize()} of row {place + 1}{cut}",
                        layers.tokens[place][:TOKENS],
                        [str(number) for number in taken],
                        [number / darkest for number in taken],
                    )
                )
    return rows


def _tabulate(found: Sequence[LayersTaken]) -> TableBlock:
    rows = []
    for layers in found:
        taken = [number for row in layers.taken for number in row]
        least = min(map(len, layers.taken)), max(map(len, layers.taken))
        rows.append(
            [
                layers.seq,
                f"{len(taken):,}",
                f"{least[0]:,}" if least[0] == least[1] else f"{least[0]:,} to {least[1]:,}",
                f"{sum(taken) / len(taken):.2f}",
                str(min(taken)),
                str(max(taken)),
                format_percent(taken.count(layers.most) / len(taken)),
            ]
        )
    head = ["sequence", "tokens", "of a row", "layers, mean", "fewest", "most", "with all layers"]
    return TableBlock(head, rows)
