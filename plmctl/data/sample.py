"""A sample of a corpus, in which tokens are about as frequent as in the corpus."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from plmctl.data.shards import Shards


def sample_corpus(ids: np.ndarray, *, pieces: int = 256, length: int = 4096) -> np.ndarray:
    """int64 [at most pieces * length] of `ids [N]`: all of them, or runs of `length` at equal
    distances.
    """
    if len(ids) <= pieces * length:
        return np.asarray(ids).astype(np.int64)
    begins = np.linspace(0, len(ids) - length, pieces).astype(np.int64)
    return np.concatenate([np.asarray(ids[begin : begin + length]) for begin in begins]).astype(
        np.int64
    )


def sample_corpora(corpora: Iterable[Shards], *, pieces: int = 256) -> np.ndarray:
    """int64 [N] the samples of several corpora, one behind the other."""
    return np.concatenate([sample_corpus(shards.ids, pieces=pieces) for shards in corpora])
