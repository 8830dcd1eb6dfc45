"""The best dependency tree of a sentence: Chu and Liu (1965), Edmonds (1967)."""

from __future__ import annotations

import numpy as np


def find_tree(scores: np.ndarray) -> list[int]:
    """The heads of n words in the tree with the largest sum of scores, with one word below the
    root.

    Args:
        scores: [n, n + 1] of each word below each head, column 0 is the root; those of a word below
            itself are not read.
    """
    count = len(scores)
    weights = np.full((count + 1, count + 1), -np.inf)  # [word, head], 0 is the root
    weights[1:] = np.where(np.isfinite(scores), scores, -1e9)
    np.fill_diagonal(weights, -np.inf)
    if count == 1:
        return [0]
    # so large that a second word below the root is never worth it
    kept = weights[np.isfinite(weights)]
    weights[1:, 0] -= (np.ptp(kept) + 1) * (count + 1)
    return _span(weights)[1:].tolist()


def pick_heads(scores: np.ndarray) -> list[int]:
    """The best head of each word by itself, which need not make a tree; arguments as of
    `find_tree`.
    """
    own = scores.copy()
    own[np.arange(len(own)), np.arange(1, len(own) + 1)] = -np.inf
    return own.argmax(1).tolist()  # type: ignore[no-any-return]


def _span(weights: np.ndarray) -> np.ndarray:
    """The heads [n + 1] of the largest tree below 0: where the best heads make a circle, it becomes
    one word.
    """
    heads = weights.argmax(1)
    heads[0] = 0
    circle = _find_circle(heads)
    if not circle:
        return heads
    inside = np.zeros(len(weights), dtype=bool)
    inside[circle] = True
    outside = np.flatnonzero(~inside)  # 0 comes first
    members = np.array(circle)
    size = len(outside)
    small = np.full((size + 1, size + 1), -np.inf)
    small[:size, :size] = weights[np.ix_(outside, outside)]
    # the gain by a head outside, for a word that gives up its head in the circle
    gains = weights[np.ix_(members, outside)] - weights[members, heads[members]][:, None]
    enters, leaves = gains.argmax(0), weights[np.ix_(outside, members)].argmax(1)
    small[size, :size] = gains.max(0)
    small[:size, size] = weights[np.ix_(outside, members)].max(1)
    small[0] = -np.inf
    found = _span(small)
    result = heads.copy()
    for number, word in enumerate(outside[1:], start=1):
        head = found[number]
        result[word] = members[leaves[number]] if head == size else outside[head]
    result[members[enters[found[size]]]] = outside[found[size]]
    return result


def _find_circle(heads: np.ndarray) -> list[int]:
    """The words of a circle of heads; none if all lead to 0."""
    seen = np.zeros(len(heads), dtype=np.int64)  # by the word from which it was reached first
    seen[0] = -1
    for start in range(1, len(heads)):
        word = start
        while not seen[word]:
            seen[word] = start
            word = int(heads[word])
        if seen[word] == start:
            circle, at = [word], int(heads[word])
            while at != word:
                circle.append(at)
                at = int(heads[at])
            return circle
    return []
