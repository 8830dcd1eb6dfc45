"""Buckets of attention by hashing: where each token falls in each round, and how even they are."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.analysis.buckets import Hashed, TokenBuckets
from plmctl.report.grids import Column, count_blocks, draw_columns
from plmctl.report.page import Block, Chart, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.text import format_percent

COLUMNS, LINES = 10, 32  # the drawn columns and lines; a line is a token
READING = (
    "The bucket of each token in each round (r, from 1) of the heads (from 0). Within a column,"
    " tokens of one colour and number are in one bucket, and can see each other; those without"
    " colour share theirs with none of the tokens that are shown. The row is the"
    " beginning of the first of {about}."
)
EVENNESS = (
    "How even the buckets are, over all of these rows. Even: 1 if all buckets have equally many"
    " tokens, 0 if one has all. Tokens are sorted by bucket and cut into chunks, and see their own"
    " chunk and the one before. So the tokens of a larger bucket do not all see each other."
)


@panel_of(TokenBuckets, order=67, title="Buckets of attention")
def panel(found: TokenBuckets) -> list[Block]:
    """A picture of some layers and a table of all."""
    charts = [
        Chart(f"buckets-{hashed.layer}", _draw(hashed, found.tokens))
        for hashed in _choose(found.layers)
    ]
    reading = Paragraph(READING.format(about=found.about))
    return [reading, *charts, Paragraph(EVENNESS), _tabulate(found.layers)]


def _choose(layers: Sequence[Hashed]) -> list[Hashed]:
    """The first, the last and one between them."""
    last = len(layers) - 1
    return [layers[n] for n in sorted({0, last // 2, last})]


def _draw(hashed: Hashed, tokens: Sequence[str]) -> str:
    heads, rounds = hashed.first.shape[:2]
    columns = [
        (f"head {head}" if rounds > 1 else str(head), f"r{turn + 1}", head, turn)
        for head in range(max(1, min(heads, COLUMNS // rounds)))
        for turn in range(min(rounds, COLUMNS))
    ]
    most = min(len(tokens), LINES * count_blocks(len(columns)))
    drawn = [
        Column(group, title, hashed.first[head, turn, :most].tolist())
        for group, title, head, turn in columns
    ]
    title = f"Layer {hashed.layer}: {hashed.buckets} buckets, {rounds} round{'s' * (rounds > 1)}"
    return draw_columns(tokens[:most], drawn, title=title)


def _tabulate(layers: Sequence[Hashed]) -> TableBlock:
    heads = max(len(hashed.evenness) for hashed in layers)
    head = ["", "buckets", "tokens of each, mean", "of the largest", "empty"]
    rows, shades = [], []
    for hashed in layers:
        rows.append(
            [
                f"layer {hashed.layer}",
                f"{hashed.buckets:,}",
                f"{hashed.tokens:.1f}",
                f"{hashed.largest:.1f}",
                format_percent(hashed.empty),
                *(f"{even:.2f}" for even in hashed.evenness),
            ]
        )
        shades.append([0.0] * len(head) + hashed.evenness)
    return TableBlock([*head, *(f"even, head {n}" for n in range(heads))], rows, shades)
