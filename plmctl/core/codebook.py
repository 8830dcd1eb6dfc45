"""Codebooks: values by the number of the nearest of a few (Han et al., 2016, arXiv:1510.00149)."""

from __future__ import annotations

import numpy as np

ROUNDS = 60  # most rounds of k-means; it converges before


def find_codebook(values: np.ndarray, entries: int) -> np.ndarray:
    """[k] the sorted entries of a codebook, k <= `entries`, by k-means from entries in equal steps
    between the smallest and the largest value (sec. 3.1 and 3.2: linear initialisation).

    Values that are no more than `entries` different ones are the codebook themselves.
    """
    flat = np.sort(values, axis=None)
    starts = np.flatnonzero(np.diff(flat, prepend=np.nan) != 0)
    if len(starts) <= entries:
        return flat[starts]
    table = np.linspace(float(flat[0]), float(flat[-1]), entries)
    sums = np.concatenate([[0.0], np.cumsum(flat, dtype=np.float64)])
    for _ in range(ROUNDS):
        ends = np.searchsorted(flat, (table[1:] + table[:-1]) / 2)
        cuts = np.concatenate([[0], ends, [len(flat)]])
        sizes = np.diff(cuts)
        moved = np.where(sizes > 0, np.diff(sums[cuts]) / np.maximum(sizes, 1), table)
        if (moved == table).all():
            break
        table = moved
    return table.astype(values.dtype)


def find_codes(values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The number of the nearest entry of a sorted table, for each value."""
    middle = (table[1:].astype(np.float64) + table[:-1]) / 2
    return np.searchsorted(middle, values)
