"""A tokenizer that needs no training: words are cut into pieces of three characters, ids are a
checksum of the piece.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import replace

import numpy as np
import pytest

from plmctl.text.vocab import Vocab

SIZE = 500
SPECIAL = 5  # pad, unk, cls, sep, mask


class Toy:
    kind = "wordpiece"

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab

    def encode_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        spans = [(m.start(), m.end()) for m in re.finditer(r"\w{1,3}|[^\w\s]", text)]
        return [
            SPECIAL + zlib.crc32(text[a:b].encode()) % (SIZE - SPECIAL) for a, b in spans
        ], spans

    def encode(self, text: str) -> list[int]:
        return self.encode_offsets(text)[0]

    @property
    def for_targets(self) -> Toy:
        return self

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]


@pytest.fixture
def toy() -> Toy:
    """BERT's template: [CLS] A [SEP] B [SEP]."""
    special = np.arange(SIZE) < SPECIAL
    vocab = Vocab(
        size=SIZE,
        pad=0,
        unk=1,
        cls=2,
        sep=3,
        mask=4,
        bos=2,
        eos=3,
        special=special,
        word_start=np.ones(SIZE, bool),
    )
    return Toy(vocab)


@pytest.fixture
def gpt_toy(toy: Toy) -> Toy:
    """GPT-2's template: one token begins, divides and ends."""
    around = {"single": ("bos", "A", "eos"), "pair": ("bos", "A", "eos", "B", "eos")}
    return Toy(replace(toy.vocab, cls=None, sep=None, mask=None, eos=2, **around))


@pytest.fixture
def roberta_toy(toy: Toy) -> Toy:
    return Toy(replace(toy.vocab, pair=("cls", "A", "sep", "sep", "B", "sep")))
