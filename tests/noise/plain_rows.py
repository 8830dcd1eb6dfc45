"""A vocabulary and rows of random tokens, for tests of noise and of objectives."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from plmctl.core.batch import Rows, Seq
from plmctl.text.vocab import Vocab


def make_vocab(
    size: int = 1000, mask: int | None = 4, *, specials: int = 10, **changes: Any
) -> Vocab:
    """The first `specials` tokens are special, the others begin words; `changes` by the names of
    `Vocab`.
    """
    special = np.arange(size) < specials
    roles = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": mask, "bos": None, "eos": 5}
    tables = {"special": special, "word_start": ~special}
    return Vocab(size=size, **(roles | tables | changes))


def make_rows(
    n: int,
    width: int,
    *,
    lengths: list[int] | None = None,
    seed: int = 0,
    documents: bool = False,
    low: int = 10,
    high: int = 1000,
) -> Rows:
    """Rows cls ... sep padded to `width`, of tokens from `low` to below `high`; with `documents`,
    each row holds several such stretches.
    """
    rng = np.random.default_rng(seed)
    length = np.full(n, width) if lengths is None else np.array(lengths)
    ids = rng.integers(low, high, (n, width)).astype(np.int32)
    document = np.zeros((n, width), np.int32)
    for r in range(n):
        edges = [0, length[r]]
        if documents:
            edges = [0, *np.unique(rng.integers(3, length[r] - 3, 4)).tolist(), length[r]]
        for d, (a, b) in enumerate(pairwise(edges)):
            ids[r, a], ids[r, b - 1], document[r, a:b] = 2, 3, d
        ids[r, length[r] :], document[r, length[r] :] = 0, -1
    tracks = {"document": document} if documents else {}
    return Rows(key=np.arange(n) * 7 + 3, seqs={"text": Seq(ids, length, tracks)})


def mark_words(rows: Rows, vocab: Vocab, **tracks: np.ndarray) -> Rows:
    """The rows with tracks.word_start by the vocabulary, and further `tracks`."""
    seq = rows.seqs["text"]
    return rows.with_seq("text", seq.with_tracks(word_start=vocab.word_start[seq.ids], **tracks))
