"""Character n-grams of words, and a vocabulary of them (Schick and Schütze, 2019, sec. 3.1; 2020,
released code).

    cat, n = 3 to 5    ^ca cat at^   ^cat cat^   ^cat^        (^: the mark at both ends, one letter)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

UNKNOWN, PAD = 0, 1  # ids of n-grams that are not known, and of padding
FIRST = 2  # the id of the most frequent n-gram
EDGE, END = "\x01", "\x02"  # stand at the ends of a word; no text has them


def spell_ngrams(word: str, least: int, most: int) -> list[str]:
    """All n-grams of `least` to `most` letters, the shortest first, each from left to right.

    The end of a word has a mark of its own only where all n-grams are of one length.
    """
    letters = f"{EDGE}{word}{END if least == most else EDGE}"
    return [
        letters[start : start + n]
        for n in range(least, most + 1)
        for start in range(len(letters) - n + 1)
    ]


@dataclass(frozen=True)
class NgramVocabulary:
    """Known n-grams, the most frequent first: the id of the first one is `FIRST`.

    Args:
        ngrams: their letters.
        least: letters of the shortest one.
        most: letters of the longest one.
    """

    ngrams: tuple[str, ...]
    least: int
    most: int

    @classmethod
    def learn(
        cls, words: Iterable[str], *, least: int, most: int, often: int, size: int
    ) -> NgramVocabulary:
        """The n-grams that stand in `words` at least `often` times, each word counted once.

        Args:
            size: The largest size of the vocabulary, `UNKNOWN` and `PAD` included.
        """
        counts = Counter(
            ngram for word in dict.fromkeys(words) for ngram in spell_ngrams(word, least, most)
        )
        frequent = sorted(
            ((ngram, count) for ngram, count in counts.items() if count >= often),
            key=lambda pair: (-pair[1], pair[0]),
        )
        return cls(tuple(ngram for ngram, _ in frequent[: size - FIRST]), least, most)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each n-gram."""
        return {ngram: number for number, ngram in enumerate(self.ngrams, FIRST)}

    def encode(self, word: str) -> list[int]:
        """The ids of all n-grams of a word, `UNKNOWN` for n-grams outside of the vocabulary."""
        return [self.ids.get(ngram, UNKNOWN) for ngram in spell_ngrams(word, self.least, self.most)]

    def encode_all(self, words: Sequence[str]) -> np.ndarray:
        """[n, N] int64: the ids of each word, padded with `PAD`."""
        encoded = [self.encode(word) for word in words]
        width = max(map(len, encoded), default=0) or 1
        return np.array([ids + [PAD] * (width - len(ids)) for ids in encoded], np.int64).reshape(
            len(encoded), width
        )

    def letters(self, size: int) -> np.ndarray:
        """[size, most] int32: the code points of each n-gram by its id, 0 behind its end."""
        table = np.zeros((size, self.most), np.int32)
        for number, ngram in enumerate(self.ngrams, FIRST):
            table[number, : len(ngram)] = [ord(letter) for letter in ngram]
        return table

    @classmethod
    def from_letters(cls, table: np.ndarray, *, least: int, most: int) -> NgramVocabulary:
        """The vocabulary of which `letters` is `table`."""
        known = table[FIRST:]
        known = known[(known != 0).any(1)]
        ngrams = ("".join(chr(code) for code in row if code) for row in known.tolist())
        return cls(tuple(ngrams), least, most)
