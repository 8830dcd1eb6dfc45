"""A sample of a corpus: tokens as frequent as they are there."""

from __future__ import annotations

import numpy as np


def corpus_sample(ids: np.ndarray, *, pieces: int = 256, length: int = 4096) -> np.ndarray:
    """int64 [at most pieces * length] of `ids [N]`: all of them, or runs of `length` at even
    distances.
    """
    if len(ids) <= pieces * length:
        return np.asarray(ids).astype(np.int64)
    begins = np.linspace(0, len(ids) - length, pieces).astype(np.int64)
    return np.concatenate([np.asarray(ids[begin : begin + length]) for begin in begins]).astype(
        np.int64
    )
