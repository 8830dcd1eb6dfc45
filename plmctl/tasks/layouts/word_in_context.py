"""One row for two sentences with one word, and the states of the row and of the word in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.terminal import counted
from plmctl.heads.features import read as features_of
from plmctl.heads.rows import POOLINGS
from plmctl.knowledge.forms import find_form
from plmctl.models.base import Model
from plmctl.tasks.facts import ModelNeeds
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.base import RowLayout, RowSettings
from plmctl.tasks.layouts.marked import MENTIONS, read_mentions
from plmctl.tasks.layouts.places import find_tokens
from plmctl.tasks.record import Example, Examples


@part_of("layout")
class WordInContextRows(RowLayout):
    """One row for the two sentences, and the states `[h_row; h_1; h_2]`. A sentence that is cut
    before its word gives the state at its end.
    """

    typed = "lines that you type: word <tab> sentence <tab> sentence"
    fields: Mapping[str, Field] = {"values.mentions": MENTIONS}

    def requires(self, rows: RowSettings) -> ModelNeeds:
        encode.refuse_causal(rows.sees_later, "words stand before the end of the text")
        if POOLINGS[rows.pooling].late:
            allowed = "a pooling with one vector a row: that of two words stands behind it"
            raise ConfigError("row_pooling", rows.pooling, allowed, fix="row_pooling=mean")
        return ModelNeeds(vectors=POOLINGS[rows.pooling].vectors + 2)

    def unit(self, example: Example) -> str:
        """Sentences about one word stay on one side, as in the published splits."""
        return str(example.fields["word"])

    def texts(self, example: Example) -> list[str]:
        return [example.fields["text"], example.fields["text2"]]

    def parse(self, line: str, number: int, columns: Mapping[str, Any]) -> Example:
        cells = line.split("\t")
        if len(cells) != 3:
            raise ValueError(
                f"{counted(len(cells), 'column')}, not word, sentence, sentence: {line[:80]!r}"
            )
        word, *texts = cells
        places = [find_form(text, word) for text in texts]
        if None in places:
            raise ValueError(f"no form of '{word}' in '{texts[places.index(None)][:60]}'")
        fields = {"word": word, "text": texts[0], "text2": texts[1], "places": places}
        return Example(id=str(number - 1), fields=fields, place=f"line {number}")

    def encode(self, examples: Examples, tokenizer: Any, rows: RowSettings) -> Rows:
        vocab = rows.transform.vocab(tokenizer.vocab)
        laid_out, mentions = [], []
        for example in examples:
            texts = [example.fields[name] for name in ("text", "text2")]
            (a, first), (b, second) = map(tokenizer.encode_offsets, texts)
            row = encode.lay_out(a, b, vocab, max_length=rows.max_length, pooling=rows.pooling)
            assert row.b_start is not None  # there are two texts
            places = example.fields["places"]
            ends = (row.b_start - 1, len(row.ids))
            mentions.append(
                [
                    *_place(first, places[0], row.a_start, ends[0]),
                    *_place(second, places[1], row.b_start, ends[1]),
                ]
            )
            laid_out.append(row)
        made = encode.pad(laid_out, vocab, example=range(len(laid_out)))
        made = encode.add_values(encode.mark_anchors(made), mentions=np.array(mentions, np.int64))
        return rows.transform.add_targets(made)

    def read(self, model: Model, batch: Batch, rows: RowSettings, *, together: bool) -> Tensor:
        """`[B, n W]` side by side."""
        words = read_mentions(features_of(model, batch), batch, "mean")  # [B, 2, W]
        own = super().read(model, batch, rows, together=together)
        return torch.cat([own, words.flatten(1)], 1)


def _place(
    offsets: Sequence[tuple[int, int]], place: tuple[int, int], start: int, end: int
) -> tuple[int, int]:
    """[first, behind the last) token of a word in its row, whose text begins at `start` and ends
    before `end`.
    """
    found = find_tokens(offsets, [place]) or [(0, 0)]
    first, last = (min(start + token, end - 1) for token in found[0])
    return first, last + 1
