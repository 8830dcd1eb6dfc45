"""A row for every choice of an example, with the context before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.parts import part_of
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.base import RowLayout, RowSettings
from plmctl.tasks.record import Example, Examples


@part_of("layout")
class ChoiceRows(RowLayout):
    """Rows `text, choice`, the rows of an example in a group. The choice and the token that stands
    for the row are global if the pattern has global tokens.
    """

    typed = "texts that you type, one a line, each with a tab before every choice"

    def parse(self, line: str, number: int, columns: Mapping[str, Any]) -> Example:
        text, *choices = line.split("\t")
        if len(choices) < 2:
            raise ValueError(
                f"text <tab> choice <tab> choice ... is needed, found {len(choices) + 1} columns"
            )
        return Example(
            id=str(number - 1), fields={"text": text, "choices": choices}, place=f"line {number}"
        )

    def texts(self, example: Example) -> list[str]:
        return [example.fields["text"], *example.fields["choices"]]

    def encode(self, examples: Examples, tokenizer: Any, rows: RowSettings) -> Rows:
        vocab = rows.transform.vocab(tokenizer.vocab)
        how: dict[str, Any] = {"max_length": rows.max_length, "pooling": rows.pooling}
        laid_out: list[encode.Row] = []
        example_of: list[int] = []
        for number, example in enumerate(examples):
            text = tokenizer.encode(example.fields["text"])
            for choice in tokenizer.encode_batch(example.fields["choices"]):
                laid_out.append(encode.lay_out(text, choice, vocab, **how))
                example_of.append(number)
        made = encode.group_rows(encode.pad(laid_out, vocab, example=example_of))
        assert made.anchors is not None
        positions = np.arange(made.seqs["text"].ids.shape[1])
        chosen = made.seqs["text"].real & (made.seqs["text"].tracks["segment"] == 1)
        made = encode.mark_global(made, chosen | (positions == made.anchors[:, 1:]))
        return rows.transform.add_targets(made)
