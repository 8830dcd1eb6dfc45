"""Rows with replaced tokens, and what the model takes each token for."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.analysis.judged import JudgedRows, JudgedToken
from plmctl.report.grids import TokenRow, draw_rows
from plmctl.report.page import Block, Chart, Paragraph
from plmctl.report.panel import panel_of

TOKENS = 96  # tokens of a row that are drawn
BELOW = "the token of the text, where it is replaced"
SCALE = ("the model says original", "replaced")
READING = (
    "Rows as the model reads them. Each box is as dark as the model is sure that its token was"
    " replaced. Below a replaced token stands that of the text, or ≠ where it is not known. A dark"
    " box without a text below is a false alarm, a light one with a text is a miss. The model"
    " finds {found:,} of {replaced:,} replaced tokens here, with {wrong:,} false alarms. These are"
    " {about}."
)


@panel_of(JudgedRows, order=59.5, title="Replaced tokens")
def panel(measured: JudgedRows) -> list[Block]:
    """A picture of each row."""
    tokens = [token for row in measured.rows for token in row if token.share is not None]
    alarms = [token for token in tokens if token.share is not None and token.share > 0.5]
    found = sum(token.replaced for token in alarms)
    text = READING.format(
        replaced=sum(token.replaced for token in tokens),
        found=found,
        wrong=len(alarms) - found,
        about=measured.about,
    )
    blocks: list[Block] = [Paragraph(text)]
    for number, row in enumerate(measured.rows, 1):
        svg = draw_rows([_draw(number, row)], title="Replaced tokens", below=BELOW, scale=SCALE)
        blocks.append(Chart(f"replaced-{number}", svg))
    return blocks


def _draw(number: int, row: Sequence[JudgedToken]) -> TokenRow:
    shown = row[:TOKENS]
    cut = f", the first {TOKENS} tokens" if len(row) > TOKENS else ""
    return TokenRow(
        f"Row {number}{cut}",
        [own.token for own in shown],
        [(own.original or "≠") if own.replaced else "" for own in shown],
        [own.share or 0.0 for own in shown],
        [_spell(own) for own in shown],
    )


def _spell(own: JudgedToken) -> str:
    """A token, what it is, and the verdict of the model."""
    if own.share is None:
        return ""
    instead = f" for {own.original}" if own.replaced and own.original else ""
    kind = f"replaced{instead}" if own.replaced else "original"
    verdict = "replaced" if own.share > 0.5 else "original"
    return f"{own.token}, {kind}. The model: {verdict} ({own.share:.2f} replaced)"
