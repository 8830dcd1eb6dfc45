"""New tokens from existing tokens of a tokenizer: frequent neighbours inside words are joined,
again and again (Sennrich et al., 2016, arXiv:1508.07909, algorithm 1).
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

Pair = tuple[str, str]
# two neighbours -> the token that they become; None: they stay apart
Join = Callable[[str, str], str | None]


@dataclass(frozen=True)
class Merge:
    """A new token.

    Args:
        left: The first part, an old token or an earlier new one.
        right: The second part.
        token: The spelling of both together.
        count: The number of times that they were neighbours.
        pieces: the old tokens that it is made of.
    """

    left: str
    right: str
    token: str
    count: int
    pieces: tuple[str, ...]


def learn_merges(
    words: Mapping[tuple[str, ...], int],
    *,
    tokens: int,
    least: int,
    join: Join,
    known: Collection[str],
    keep_all: bool,
) -> list[Merge]:
    """The most frequent merges, in their order; of equally frequent ones the first by spelling.

    Args:
        words: The count of each word in the text, by its tokens.
        tokens: new ones that are wanted.
        least: The least count of a new token in the text.
        known: tokens that there are: nothing is merged to one of them.
        keep_all: Also return tokens that are merged further until fewer than `least` are left (a
            tokenizer that applies merges needs them).
    """
    text = _Text(words, least=least, join=join, known=known)
    merges: dict[str, Merge] = {}
    kept = merges if keep_all else text.frequent
    while len(kept) < tokens and (best := text.find_best()) and best[0] >= least:
        count, pair, token = best
        text.merge(pair, token)
        parts = (merges[part].pieces if part in merges else (part,) for part in pair)
        merges[token] = Merge(*pair, token, count, tuple(chain.from_iterable(parts)))
    return [merge for token, merge in merges.items() if token in kept]


class _Text:
    """Words as they are cut by now, and how often each pair of neighbours stands in them."""

    def __init__(
        self,
        words: Mapping[tuple[str, ...], int],
        *,
        least: int,
        join: Join,
        known: Collection[str],
    ) -> None:
        self.frequent: set[str] = set()  # new tokens that stand there at least so often
        self._least, self._join, self._known = least, join, set(known)
        self._counts = Counter[str]()  # counts of new tokens
        self._words = [list(word) for word in words]
        self._times = list(words.values())
        self._pairs = Counter[Pair]()
        self._where = defaultdict[Pair, set[int]](set)
        for number in range(len(self._words)):
            self._count(number, 1)
        self._heap = [(-count, pair) for pair, count in self._pairs.items()]
        heapq.heapify(self._heap)

    def find_best(self) -> tuple[int, Pair, str] | None:
        """How often the most frequent pair stands there, the pair, and what it becomes."""
        while self._heap:
            count, pair = heapq.heappop(self._heap)
            token = self._join(*pair)
            # where a pair became more or less frequent, another entry counts
            if -count == self._pairs[pair] and token is not None and token not in self._known:
                return -count, pair, token
        return None

    def merge(self, pair: Pair, token: str) -> None:
        """Make one token of this pair, wherever it stands."""
        self._known.add(token)
        changed: set[Pair] = set()
        for number in sorted(self._where.pop(pair)):
            word = self._words[number]
            merged = _join_in(word, pair, token)
            made = (len(word) - len(merged)) * self._times[number]
            if not made:
                continue  # it stood there before
            changed.update(pairwise(word), pairwise(merged))
            self._count(number, -1)
            self._words[number] = merged
            self._count(number, 1)
            self._counts[token] += made
            for part in pair:
                self._counts[part] -= made
        self.frequent.difference_update(part for part in pair if self._counts[part] < self._least)
        if self._counts[token] >= self._least:
            self.frequent.add(token)
        for other in changed:
            if self._pairs[other] > 0:
                heapq.heappush(self._heap, (-self._pairs[other], other))

    def _count(self, number: int, sign: int) -> None:
        """Count the pairs of a word (1), or take them back (-1)."""
        for pair in pairwise(self._words[number]):
            self._pairs[pair] += sign * self._times[number]
            if sign > 0:
                self._where[pair].add(number)


def _join_in(word: Sequence[str], pair: Pair, token: str) -> list[str]:
    """A word in which each such pair is one token, from left to right."""
    merged: list[str] = []
    for part in word:
        if merged and (merged[-1], part) == pair:
            merged[-1] = token
        else:
            merged.append(part)
    return merged
