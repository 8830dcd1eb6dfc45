"""One row for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.parts import part_of
from plmctl.core.terminal import counted
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.base import RowLayout, RowSettings
from plmctl.tasks.record import Example, Examples
from plmctl.tasks.transform import Transform

PIECE = 1024  # texts that are tokenized at once


def parse_texts(line: str, number: int, columns: Mapping[str, Any]) -> Example:
    """`text`, or `text <tab> text2` for a pair."""
    roles = [role for role in ("text", "text2") if columns.get(role) is not None]
    cells = line.split("\t") if len(roles) > 1 else [line]
    if len(cells) < len(roles):
        there = counted(len(cells), "column")
        raise ValueError(f"{there} where a pair needs 2, separated by a tab: {line[:80]!r}")
    return Example(
        id=str(number - 1), fields=dict(zip(roles, cells, strict=False)), place=f"line {number}"
    )


@part_of("layout")
class TextRows(RowLayout):
    """One row for a text or a pair; `symmetric`: the texts of a pair have no order."""

    def __init__(self, *, symmetric: bool = False) -> None:
        self.symmetric = symmetric

    def parse(self, line: str, number: int, columns: Mapping[str, Any]) -> Example:
        return parse_texts(line, number, columns)

    def encode(self, examples: Examples, tokenizer: Any, rows: RowSettings) -> Rows:
        return encode_texts(
            examples,
            tokenizer,
            max_length=rows.max_length,
            pooling=rows.pooling,
            transform=rows.transform,
            symmetric=self.symmetric,
        )


def encode_texts(
    examples: Examples,
    tokenizer: Any,
    *,
    max_length: int,
    pooling: str,
    transform: Transform,
    symmetric: bool,
) -> Rows:
    """One row an example: `text`, or `text` and `text2`, in the tokenizer's template; `values.cut`
    counts truncated tokens. The token that stands for the row is global.

    A symmetric pair makes two rows, one for each order, where the transform says so.
    """
    vocab = transform.vocab(tokenizer.vocab)
    pair = "text2" in examples[0].fields
    both = pair and symmetric and transform.both_orders

    def read(piece: Examples, name: str) -> Sequence[Any]:
        return tokenizer.encode_batch([str(example.fields[name]) for example in piece])

    def lay_out() -> Iterator[encode.Row]:
        for start in range(0, len(examples), PIECE):
            piece = examples[start : start + PIECE]
            second = read(piece, "text2") if pair else [None] * len(piece)
            for a, b in zip(read(piece, "text"), second, strict=True):
                for order in [(a, b), (b, a)] if both else [(a, b)]:
                    yield encode.lay_out(*order, vocab, max_length=max_length, pooling=pooling)

    each = np.arange(len(examples)).repeat(1 + both)
    rows = encode.pad(lay_out(), vocab, example=each)
    rows = encode.mark_anchors(rows)
    return transform.add_targets(encode.group_rows(rows) if both else rows)
