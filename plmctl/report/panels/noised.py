"""Rows with the tokens that noise hid, token by token."""

from __future__ import annotations

from plmctl.analysis.noised import HiddenToken, NoisedRows
from plmctl.report.grids import TokenRow, draw_rows
from plmctl.report.page import Block, Chart, Paragraph
from plmctl.report.panel import panel_of

TOKENS = 96  # tokens of a row that are drawn
BELOW = "the hidden token of the text"
SCALE = ("likely for the model, or not hidden", "unlikely")
READING = (
    "Rows as the model reads them. Below a token that it has to predict stands the token of the"
    " text, the darker the less likely the model finds that. The pointer, or the arrow keys, go"
    " from one to the next and show the guesses of the model. These are {about}."
)


@panel_of(NoisedRows, order=59, title="Hidden tokens")
def panel(found: NoisedRows) -> list[Block]:
    """A picture of each row."""
    rows = [
        _draw(number, tokens, hidden)
        for number, (tokens, hidden) in enumerate(zip(found.tokens, found.hidden, strict=True), 1)
    ]
    blocks: list[Block] = [Paragraph(READING.format(about=found.about))]
    for number, row in enumerate(rows, 1):
        blocks.append(
            Chart(
                f"hidden-{number}",
                draw_rows([row], title="Hidden tokens", below=BELOW, scale=SCALE),
            )
        )
    return blocks


def _draw(number: int, tokens: list[str], hidden: dict[int, HiddenToken]) -> TokenRow:
    shown = tokens[:TOKENS]
    cut = f", the first {TOKENS} tokens" if len(tokens) > TOKENS else ""
    own = [hidden.get(place) for place in range(len(shown))]
    return TokenRow(
        f"Row {number}{cut}",
        shown,
        [each.original if each else "" for each in own],
        [1 - each.share if each else 0.0 for each in own],
        [_spell(token, each) if each else "" for token, each in zip(shown, own, strict=True)],
    )


def _spell(token: str, own: HiddenToken) -> str:
    guesses = ", ".join(f"{guess} {share:.2f}" for guess, share in own.guesses)
    return f"{token}, in the text {own.original} ({own.share:.2f}). Guesses: {guesses}"
