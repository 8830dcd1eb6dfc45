"""How often words stand near each other, each pair by one over its distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plmctl.vectors.corpus import WordCorpus

BLOCK = 1 << 18  # words that are counted at the same time
_MERGE = 1 << 25  # pairs of blocks that wait to be added up


@dataclass(frozen=True, eq=False)
class WordPairCounts:
    """`X_ij` of all pairs that were met, both ways.

    Args:
        first: int64 [n] i.
        second: int64 [n] j.
        counts: float64 [n].
    """

    first: np.ndarray
    second: np.ndarray
    counts: np.ndarray


def count_near(corpus: WordCorpus, reach: int) -> WordPairCounts:
    """`X_ij = sum 1 / d` over all pairs where j stands d <= `reach` words before or behind i, in
    one sentence (Pennington et al., 2014, sec. 4.2). Rare words are not there at all.
    """
    size = len(corpus.words)
    waiting, found = list[tuple[np.ndarray, np.ndarray]](), 0
    for words, sentences in corpus.read_blocks(BLOCK):
        keys, values = [np.zeros(0, np.int64)], [np.zeros(0)]
        for distance in range(1, min(reach, len(words) - 1) + 1):
            same = sentences[distance:] == sentences[:-distance]
            one, other = words[:-distance][same].astype(np.int64), words[distance:][same]
            keys.append(np.minimum(one, other) * size + np.maximum(one, other))
            values.append(np.full(len(one), 1 / distance))
        waiting.append(_add_up(np.concatenate(keys), np.concatenate(values)))
        found += len(waiting[-1][0])
        if found > _MERGE:
            waiting = [_merge(waiting)]
            found = 0
    pairs, sums = _merge(waiting)
    first, second = pairs // size, pairs % size
    apart = first != second
    return WordPairCounts(
        np.concatenate([first, second[apart]]),
        np.concatenate([second, first[apart]]),
        np.concatenate([np.where(apart, sums, 2 * sums), sums[apart]]),
    )


def _merge(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    return _add_up(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _add_up(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each key once, with the sum of its values."""
    different, back = np.unique(keys, return_inverse=True)
    return different, np.bincount(back, values, len(different))
