"""Static vectors of words: one vector for a word, whatever it stands in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plmctl.knowledge.subwords import Subwords
from plmctl.text.letters import compose


@dataclass(frozen=True, eq=False)
class StaticVectors:
    """Words and their vectors, whatever file they come from.

    Args:
        words: the frequent ones first, in most files.
        table: float32 [N, D].
        subwords: The n-grams whose vectors make the vectors of other words; None: other words have
            none.
    """

    words: Sequence[str]
    table: np.ndarray
    subwords: Subwords | None = None

    @property
    def width(self) -> int:
        """D."""
        return int(self.table.shape[1])

    @cached_property
    def number(self) -> dict[str, int]:
        """The row of each word; of two that are equal, the first."""
        return {word: number for number, word in reversed(list(enumerate(self.words)))}

    @cached_property
    def unit(self) -> np.ndarray:
        """[N, D] the vectors brought to length 1; zeros stay."""
        norms = np.linalg.norm(self.table, axis=1, keepdims=True)
        made: np.ndarray = self.table / np.where(norms > 0, norms, 1)
        return made

    def find(self, word: str) -> np.ndarray | None:
        """[D] the vector of a word as written, in lower case, or from its n-grams; None without
        one.
        """
        word = word if word in self.number else compose(word)
        number = self.number.get(word, self.number.get(word.lower()))
        if number is not None:
            row: np.ndarray = self.table[number]
            return row
        return None if self.subwords is None else self.subwords.make(word)

    def choose(self, words: Iterable[str]) -> dict[str, np.ndarray]:
        """The vectors of those words that have one."""
        found = {word: self.find(word) for word in words}
        return {word: vector for word, vector in found.items() if vector is not None}
