"""Rows with the tokens that noise hid, token by token."""

from __future__ import annotations

from dataclasses import replace

from plmctl.analysis.noised import HiddenToken, NoisedRows, WrittenRows
from plmctl.report.grids import TokenRow, draw_rows
from plmctl.report.page import Block, Chart, Paragraph
from plmctl.report.panel import panel_of

TOKENS = 96  # tokens of a row that are drawn
BELOW = "the hidden token of the text"
SCALE = ("likely, or not hidden", "unlikely")
MISSED = "in the target, the likeliest token, where it is another one"
TARGETS = ("likely", "unlikely")
WRITTEN = (
    "The source as the model reads it, behind the noise, and below it the target. The model"
    " predicts each token of the target from the source and the right tokens before. A token is the"
    " darker the less likely the model finds it. The pointer shows its guesses. These are {about}."
)
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


@panel_of(WrittenRows, order=59.2, title="Written tokens")
def written(found: WrittenRows) -> list[Block]:
    """A picture of the source and the target of each row."""
    blocks: list[Block] = [Paragraph(WRITTEN.format(about=found.about))]
    for number, (source, target) in enumerate(zip(found.sources, found.targets, strict=True), 1):
        shown = source[:TOKENS]
        cut = f", the first {TOKENS} tokens" if len(source) > TOKENS else ""
        empty = [""] * len(shown)
        read = TokenRow(f"Source {number}{cut}", shown, empty, [0.0] * len(shown))
        tokens = [token.original for token in target]
        own = _draw(number, tokens, dict(enumerate(target)))
        guesses = [token.guesses[0][0] for token in target[:TOKENS]]
        missed = [
            best if best != each else "" for best, each in zip(guesses, own.tokens, strict=True)
        ]
        rows = [read, replace(own, title=f"Target {own.title[4:]}", numbers=missed)]
        svg = draw_rows(rows, title="Written tokens", below=MISSED, scale=TARGETS)
        blocks.append(Chart(f"written-{number}", svg))
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
