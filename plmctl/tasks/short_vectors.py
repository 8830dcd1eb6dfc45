"""Vectors with a byte or a bit for each number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

Stored = Literal["fp32", "int8", "binary", "sparse"]  # in a file
LEVELS = 255

_ONES = np.array([number.bit_count() for number in range(256)], np.uint8)
_count_ones: Callable[[np.ndarray], Any] = getattr(np, "bitwise_count", _ONES.__getitem__)


def find_ranges(vectors: np.ndarray) -> np.ndarray:
    """[2, W] the least and the largest number of each column of vectors [n, W]."""
    return np.stack([vectors.min(0), vectors.max(0)]).astype(np.float32)


def round_to_bytes(vectors: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """[n, W] int8: `clip(floor(255 (v - low) / (high - low)), 0, 255) - 128` of vectors [n, W] by
    `ranges [2, W]`, as sentence-transformers writes them.
    """
    low, high = ranges
    steps = (vectors - low) / np.maximum((high - low) / LEVELS, np.finfo(np.float32).tiny)
    return (np.clip(np.floor(steps), 0, LEVELS) - 128).astype(np.int8)


def restore_bytes(codes: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """[n, W] the middle of the numbers that have a code."""
    low, high = ranges
    middle = low + (codes.astype(np.float32) + 128.5) * ((high - low) / LEVELS)
    return np.minimum(middle, high).astype(np.float32)


def pack_signs(vectors: np.ndarray) -> np.ndarray:
    """[n, ceil(W / 8)] uint8: a bit for each number of vectors [n, W], 1 above 0."""
    return np.packbits(vectors > 0, axis=-1)


def restore_signs(codes: np.ndarray, width: int) -> np.ndarray:
    """[n, width] 1 or -1 for each bit, over the root of `width`: vectors of length 1."""
    bits = np.unpackbits(codes, axis=-1, count=width)
    return ((2.0 * bits - 1) / np.sqrt(width)).astype(np.float32)


def count_unlike(code: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """[n] the bits in which codes [n, b] differ from a code [b], their Hamming distance."""
    return np.asarray(_count_ones(codes ^ code).sum(-1, dtype=np.int64))
