"""A vocabulary and rows of random tokens, for tests of noise."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from plmctl.core.batch import Rows, Seq
from plmctl.text.vocab import Vocab


def make_vocab(size: int = 1000, mask: int | None = 4) -> Vocab:
    special = np.arange(size) < 10
    return Vocab(
        size=size,
        pad=0,
        unk=1,
        cls=2,
        sep=3,
        mask=mask,
        bos=None,
        eos=5,
        special=special,
        word_start=~special,
    )


def make_rows(
    n: int, width: int, *, lengths: list[int] | None = None, seed: int = 0, documents: bool = False
) -> Rows:
    """Rows cls ... sep padded to `width`; with `documents`, each row holds several such
    stretches.
    """
    rng = np.random.default_rng(seed)
    length = np.full(n, width) if lengths is None else np.array(lengths)
    ids = rng.integers(10, 1000, (n, width)).astype(np.int32)
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
