"""Word in Context (Pilehvar and Camacho-Collados, 2019): does a word mean the same in two
sentences?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.terminal import counted
from plmctl.heads.features import read as features_of
from plmctl.heads.rows import POOLINGS
from plmctl.knowledge.forms import find_form
from plmctl.models.base import Model
from plmctl.tasks.classification import Classification, ClassificationSettings
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.marked import MENTIONS, read_mentions
from plmctl.tasks.layouts.places import find_tokens
from plmctl.tasks.record import Example
from plmctl.tasks.transform import pool_rows


@dataclass(frozen=True, kw_only=True)
class WicSettings(ClassificationSettings):
    """Settings of Word in Context: those of classification; its files have no columns."""

    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]


@part_of("task")
class WordInContext(Classification):
    """Predicts whether a word has one sense in two sentences, from `[h_row; h_1; h_2]`. The first
    is the state of the row (one state, or several by the pooling of the model), the others are the
    mean states of the word in each sentence.

    `loss = -log softmax(head([h_row; h_1; h_2]))[label]` (Wang et al., 2019, SuperGLUE,
    arXiv:1905.00537, sec. 4.1, for BERT). A sentence that is cut before its word gives the state at
    its end.
    """

    fields: Mapping[str, Field] = {"values.mentions": MENTIONS}
    facts = replace(
        Classification.facts, typed="lines that you type: word <tab> sentence <tab> sentence"
    )

    Settings = WicSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.requires = replace(self.requires, vectors=POOLINGS[self.pooling].vectors + 2)
        encode.refuse_causal(self.settings.sees_later, "words stand before the end of the text")

    def unit(self, example: Example) -> str:
        """Sentences about one word stay on one side, as in the published splits."""
        return str(example.fields["word"])

    def texts(self, example: Example) -> list[str]:
        return [example.fields["text"], example.fields["text2"]]

    def parse(self, line: str, number: int) -> Example:
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

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        vocab = self.transform.vocab(tokenizer.vocab)
        laid_out, mentions = [], []
        for example in examples:
            texts = [example.fields[name] for name in ("text", "text2")]
            (a, first), (b, second) = map(tokenizer.encode_offsets, texts)
            row = encode.lay_out(a, b, vocab, max_length=self.max_length, pooling=self.pooling)
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
        rows = encode.pad(laid_out, vocab, example=range(len(laid_out)))
        rows = encode.add_values(encode.mark_anchors(rows), mentions=np.array(mentions, np.int64))
        rows = self.transform.add_targets(rows)
        return self.add_labels(rows, examples)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        words = read_mentions(features_of(model, batch), batch, "mean")  # [B, 2, W]
        states = torch.cat([pool_rows(self, model, batch), words.flatten(1)], 1)  # [B, n W]
        return {"class": model.heads["class"](states)}


def _place(
    offsets: Sequence[tuple[int, int]], place: tuple[int, int], start: int, end: int
) -> tuple[int, int]:
    """[first, behind the last) token of a word in its row, whose text begins at `start` and ends
    before `end`.
    """
    found = find_tokens(offsets, [place]) or [(0, 0)]
    first, last = (min(start + token, end - 1) for token in found[0])
    return first, last + 1
