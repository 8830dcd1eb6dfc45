"""One row for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.core.batch import Rows
from plmctl.core.terminal import counted
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Example
from plmctl.tasks.transform import Transform


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


def encode_texts(
    examples: Sequence[Example],
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
    first = tokenizer.encode_batch([str(example.fields["text"]) for example in examples])
    pair = "text2" in examples[0].fields
    second = (
        tokenizer.encode_batch([str(example.fields["text2"]) for example in examples])
        if pair
        else [None] * len(examples)
    )
    both = pair and symmetric and transform.both_orders
    orders = [
        order
        for a, b in zip(first, second, strict=True)
        for order in ([(a, b), (b, a)] if both else [(a, b)])
    ]
    laid = [encode.lay_out(a, b, vocab, max_length=max_length, pooling=pooling) for a, b in orders]
    rows = encode.pad(laid, vocab, example=[place // (1 + both) for place in range(len(laid))])
    rows = encode.mark_anchors(rows)
    return transform.add_targets(encode.group_rows(rows) if both else rows)
