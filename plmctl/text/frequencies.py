"""How often each token of a vocabulary occurs in a text, and its share of it."""

from __future__ import annotations

import numpy as np

from plmctl.storage.arrays import walk

_CHUNK = 1 << 22  # bincount widens its input to int64: 32 MiB at a time, however large the shards


def count_tokens(ids: np.ndarray, vocab_size: int) -> np.ndarray:
    """How often each id occurs: `ids [N]` (may be memory-mapped) -> `[V]` int64."""
    counts = np.zeros(vocab_size, np.int64)
    for chunk in walk(ids, _CHUNK):
        chunk_counts = np.bincount(chunk, minlength=vocab_size)
        if len(chunk_counts) > vocab_size:
            raise ValueError(
                f"token id {len(chunk_counts) - 1} is outside the vocabulary of {vocab_size}"
            )
        counts += chunk_counts
    return counts


def measure_frequencies(ids: np.ndarray, vocab_size: int) -> np.ndarray:
    """[V] share of each id in `ids [N]`, after each was seen once more, so that none is 0."""
    return estimate_frequencies(count_tokens(ids, vocab_size), np.ones(vocab_size, bool))


def estimate_frequencies(counts: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """[V] `(c_v + 1) / (N + V')`, of the V' tokens that are `predicted`; by the added one, a token
    never seen in training has a chance.
    """
    return (counts + 1.0) / (counts.sum() + predicted.sum())  # type: ignore[no-any-return]
