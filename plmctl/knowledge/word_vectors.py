"""The words nearest to a word by their vectors (Pennington et al., 2014)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.knowledge.vector_files import read_static

# words that are read; GloVe's files have the frequent ones first (TinyBERT, data_augmentation.py)
LIMIT = 100_000
_TOGETHER = 64  # words that are compared at the same time


class Neighbours(StaticVectors):
    """Words and their vectors; the nearest words have the largest cosine."""

    @classmethod
    def read(
        cls, file: Path, limit: int = LIMIT, among: Collection[str] | None = None
    ) -> Neighbours:
        """Read a file as `read_static` does."""
        read = read_static(file, limit, among)
        return cls(read.words, read.table)

    def find_nearest(self, words: Sequence[str], count: int) -> dict[str, list[str]]:
        """{word: the `count` nearest other words}, for words with a vector, as written or in lower
        case; neighbours of a capitalised word are capitalised.
        """
        numbers = {
            word: number
            for word in words
            if (number := self.number.get(word, self.number.get(word.lower()))) is not None
        }
        nearest: dict[str, list[str]] = {}
        known = list(numbers)
        for start in range(0, len(known), _TOGETHER):
            some = known[start : start + _TOGETHER]
            own = [numbers[word] for word in some]
            alike = self.unit[own] @ self.unit.T  # [n, N]
            alike[np.arange(len(own)), own] = -np.inf
            for word, order in zip(
                some, np.argsort(-alike, axis=1, kind="stable")[:, :count], strict=True
            ):
                others = [self.words[number] for number in order if number != numbers[word]]
                nearest[word] = [other.title() for other in others] if word.istitle() else others
        return nearest
