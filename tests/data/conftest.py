"""A shard in memory, with the attributes of `plmctl.data.shards.Shards`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from plmctl.text.vocab import Vocab


@dataclass
class MemoryShards:
    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    tracks: dict = field(default_factory=dict)
    spans: dict = field(default_factory=dict)
    pairs: bool = False
    fingerprint: str = "memory"
    folder: str = "memory"
    given: str = "memory"
    vocab_size: int = 1 << 31

    def texts(self) -> list[list[list[int]]]:
        """Documents of sentences of ids, as lists: what the loop references read."""
        sentences = [
            self.ids[a:b].tolist()
            for a, b in zip(self.sentences[:-1], self.sentences[1:], strict=True)
        ]
        return [
            sentences[a:b] for a, b in zip(self.documents[:-1], self.documents[1:], strict=True)
        ]


def make_shards(lengths: list[list[int]], first: int = 10) -> MemoryShards:
    """Documents with the given sentence lengths; every token is another number, from `first` on."""
    flat = [n for document in lengths for n in document]
    sentences = np.concatenate([[0], np.cumsum(flat)]).astype(np.int64)
    documents = np.concatenate([[0], np.cumsum([len(document) for document in lengths])]).astype(
        np.int64
    )
    return MemoryShards(
        np.arange(first, first + int(sentences[-1]), dtype=np.uint32), sentences, documents
    )


def random_shards(
    documents: int, seed: int = 0, longest: int = 30, sentences: int = 12
) -> MemoryShards:
    rng = np.random.default_rng(seed)
    return make_shards(
        [rng.integers(1, longest, rng.integers(1, sentences)).tolist() for _ in range(documents)]
    )


def make_vocab(
    size: int = 100_000, *, pair: tuple[str, ...] = ("cls", "A", "sep", "B", "sep")
) -> Vocab:
    """Ids 0..9 are special: pad 0, unk 1, cls 2, sep 3, mask 4, eos 5; even ids begin words."""
    return Vocab(
        size=size,
        pad=0,
        unk=1,
        cls=2,
        sep=3,
        mask=4,
        bos=None,
        eos=5,
        special=np.arange(size) < 10,
        word_start=np.arange(size) % 2 == 0,
        pair=pair,
    )


@pytest.fixture
def vocab() -> Vocab:
    return make_vocab()


@pytest.fixture
def toy() -> MemoryShards:
    return random_shards(60)


@pytest.fixture
def shards_of():
    return make_shards


@pytest.fixture
def random_shards_of():
    return random_shards


@pytest.fixture
def vocab_of():
    return make_vocab
