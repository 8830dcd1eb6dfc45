"""Equal keys to groups of documents, with a few bytes of memory for each document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from plmctl.cleaning.minhash import NONE, MinHash, find_copy_keys
from plmctl.cleaning.steps import map_array
from plmctl.cleaning.word_hashes import WordHashes

PASS = 1 << 24  # keys that are sorted at once
CHUNK = 1 << 20  # pairs that are joined at once


def find_pairs(files: Sequence[Path], rows: slice) -> np.ndarray:
    """[M, 2] int64: pairs of documents with equal keys, which link all that have one key.

    Args:
        files: An array [K, N] of keys for each part; documents are numbered through all parts.
        rows: The keys to compare, one or two of the K; documents whose first one is `NONE` have
            none.
    """
    total = sum(map_array(file).shape[1] for file in files)
    pairs = [_pair_equal(*group) for group in _read_ranges(files, rows, -(-total // PASS))]
    return np.concatenate(pairs) if pairs else np.zeros((0, 2), np.int64)


def _read_ranges(
    files: Sequence[Path], rows: slice, passes: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(keys [R, N], numbers [N]) of the documents whose first key lies in one of `passes` ranges.
    Keys are hashes, so that all ranges have about as many.
    """
    for step in range(passes):
        low, high = (step << 64) // passes, ((step + 1) << 64) // passes - 1
        keys, numbers, offset = [], [], 0
        for file in files:
            some = map_array(file)[rows]
            first = some[0]
            chosen = (first >= np.uint64(low)) & (first <= np.uint64(high)) & (first != NONE)
            keys.append(some[:, chosen])
            numbers.append(np.flatnonzero(chosen) + offset)
            offset += some.shape[1]
        yield np.concatenate(keys, 1), np.concatenate(numbers)


def _pair_equal(keys: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """[M, 2]: neighbours in the order of their keys whose keys are equal."""
    order = np.lexsort(keys[::-1]) if len(keys) > 1 else np.argsort(keys[0], kind="stable")
    keys, numbers = keys[:, order], numbers[order]
    equal = (keys[:, 1:] == keys[:, :-1]).all(0)
    return np.stack([numbers[:-1][equal], numbers[1:][equal]], 1)


class Clusters:
    """Groups of documents that pairs link, directly or through others.

    Args:
        order: [N] the numbers of all documents, the best first; of each group the best stays.
    """

    def __init__(self, order: np.ndarray) -> None:
        self._order = order
        self._rank = np.empty(len(order), np.int64)
        self._rank[order] = np.arange(len(order))
        self._parent = np.arange(len(order))  # by rank; a root is the least rank of its group

    def join(self, pairs: np.ndarray) -> None:
        """Join the groups of the two documents of each pair, [M, 2]."""
        for start in range(0, len(pairs), CHUNK):
            ranks = self._rank[pairs[start : start + CHUNK]]
            while len(ranks):
                roots = self._find_roots(ranks)
                apart = roots[:, 0] != roots[:, 1]
                ranks, roots = ranks[apart], roots[apart]
                np.minimum.at(self._parent, higher := roots.max(1), roots.min(1))
                self._find_roots(higher)  # a long chain halves its length at each step

    def find_best(self, values: np.ndarray | None = None) -> np.ndarray:
        """[N] int64: for each document, the best one of its group; with `values`, [N] uint32, the
        best one with its value.
        """
        roots = self._find_roots(np.arange(len(self._parent)))
        if values is not None:
            apart = roots << 32 | values[self._order].astype(np.int64)
            _, first, inverse = np.unique(apart, return_index=True, return_inverse=True)
            roots = first[inverse]
        best: np.ndarray = self._order[roots][self._rank]
        return best

    def _find_roots(self, ranks: np.ndarray) -> np.ndarray:
        roots = self._parent[ranks]
        while not np.array_equal(above := self._parent[roots], roots):
            self._parent[ranks] = roots = above
        return roots


def group_texts(texts: Sequence[str], units: Sequence[str] = ()) -> np.ndarray:
    """[N] int64: the number of the first text of each one's group. A group has copies and near
    duplicates, as `data dedup` finds them with its own settings.

    Args:
        units: A name of each text; equal ones are in one group, too.
    """
    if not texts:
        return np.zeros(0, np.int64)
    minhash, hashes, numbers = MinHash(), WordHashes(), np.arange(len(texts))
    keys = np.stack([find_copy_keys(text, minhash, hashes) for text in texts], 1)
    kinds = [keys[:2], *keys[2:, None]]
    if len(units):
        kinds.append(np.unique(np.array(units), return_inverse=True)[1][None].astype(np.uint64) + 1)
    clusters = Clusters(numbers)
    for own in kinds:
        some = own[0] != NONE
        clusters.join(_pair_equal(own[:, some], numbers[some]))
    return clusters.find_best()


def order_documents(columns: Sequence[np.ndarray]) -> np.ndarray:
    """[N] the numbers of documents by the columns, the first one first, and then by number."""
    return np.lexsort(columns[::-1]) if columns else np.zeros(0, np.int64)


def load_rows(files: Sequence[Path], choose: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The chosen values of the arrays of all parts, one behind the other."""
    return np.concatenate([choose(map_array(file)) for file in files])
