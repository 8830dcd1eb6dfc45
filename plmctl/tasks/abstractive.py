"""Summaries that a model writes, whose encoder reads the document sentence by sentence
(BERTSUM).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.tasks.extractive import find_anchor, lay_out, sentences_of
from plmctl.tasks.generation import Generation
from plmctl.tasks.layouts import sequences
from plmctl.tasks.readers.documents import divide
from plmctl.tasks.record import Example, Examples


@part_of("task")
class Abstractive(Generation):
    """As `Generation`, of a source in BERTSUM's rows: a token before every sentence, segments 0 and
    1 by turns (Liu and Lapata, 2019, arXiv:1908.08345, sec. 3.1 and 3.3).

    For encoder-decoders, such as one around an encoder that was trained alone (BertSumAbs), or on
    task=extractive_summarization (BertSumExtAbs). Tokens before sentences are global if the
    pattern has global tokens. Differs: one table of tokens for both ends, which learns at the
    rate of the encoder.
    """

    def check_model(self, model: Model, vocab_size: int = 0) -> None:
        super().check_model(model, vocab_size)
        if self.writes != "target":
            allowed = "an encoder-decoder: a document is read sentence by sentence at one end"
            fix = "model=encoder_decoder checkpoint_into=encoder, or task=summarization"
            raise ConfigError("model", self.kind, allowed, fix=fix)

        if self.templates[0]:
            allowed = "null: the tokens around a sentence are those of the tokenizer"
            raise ConfigError("task.source_template", list(self.templates[0]), allowed)

    def parse(self, line: str, number: int) -> Example:
        return super().parse(divide(line), number)

    def encode_source(self, text: str, tokenizer: Any) -> tuple[list[int], int]:
        return super().encode_source(divide(text), tokenizer)

    def lay_sources(self, examples: Examples, tokenizer: Any) -> sequences.Cut:
        laid_out = [
            lay_out(
                tokenizer.encode_batch([self.prefix + first, *others]),
                tokenizer.vocab,
                max_length=self.max_length,
            )[0]
            for first, *others in map(sentences_of, examples)
        ]
        rows = sequences.pad([row.ids for row in laid_out], tokenizer.vocab.pad)
        return rows, np.array([row.cut for row in laid_out], dtype=np.int64)

    def add_tracks(self, source: Seq) -> Seq:
        vocab = self._tokenizer.vocab
        first = vocab.id(vocab.single[find_anchor(vocab)])
        begins = source.real & (source.ids == first)
        number = np.maximum(begins.cumsum(1) - 1, 0)
        segment = np.where(source.real, number % 2, 0).astype(np.uint8)
        return source.with_tracks(segment=segment, **{"global": begins.astype(np.uint8)})
