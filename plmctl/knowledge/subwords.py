"""fastText's subwords (Bojanowski et al., 2017): a word is its n-grams of characters, each of which
shares a row of a table with others of the same hash.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plmctl.core.errors import DataError

FIRST, FACTOR, MASK = 2_166_136_261, 16_777_619, 0xFFFF_FFFF  # constants of FNV-1a with 32 bits


def hash_bytes(text: bytes, value: int = FIRST) -> int:
    """FNV-1a of 32 bits, `h = (h xor byte) * 16777619`. As in fastText (Dictionary::hash), a byte
    has a sign: from 128 on it flips all upper bits of h, too.

    Args:
        value: The hash of the bytes before them.
    """
    for byte in text:
        value = ((value ^ (byte if byte < 128 else byte | 0xFFFF_FF00)) * FACTOR) & MASK
    return value


@dataclass(frozen=True)
class Ngrams:
    """The n-grams of `<word>` that count, and the bucket of each; a lone `<` or `>` is none.

    Args:
        least: characters of the shortest.
        most: The length of the longest n-gram; 0: no n-grams.
        buckets: rows that they share.

    Source: Bojanowski et al., 2017, arXiv:1607.04606, sec. 3.2; fastText, Dictionary::
    computeSubwords.
    """

    least: int
    most: int
    buckets: int

    def find(self, word: str) -> list[int]:
        """The bucket of each n-gram of a word, from left to right, shorter ones first."""
        letters = [letter.encode("utf-8", "surrogatepass") for letter in f"<{word}>"]
        found, count = list[int](), len(letters)
        for start in range(count):
            value = FIRST
            for end in range(start + 1, min(count, start + self.most) + 1):
                value = hash_bytes(letters[end - 1], value)
                lone = end - start == 1 and (start == 0 or end == count)
                if end - start >= self.least and not lone:
                    found.append(value % self.buckets)
        return found


@dataclass(frozen=True, eq=False)
class Subwords:
    """The vectors of n-grams, of which those of unseen words are made.

    Args:
        ngrams: The n-grams that count, and their buckets.
        table: [B, D] the vectors of the buckets.
    """

    ngrams: Ngrams
    table: np.ndarray

    def make(self, word: str) -> np.ndarray | None:
        """[D] the mean over the n-grams of a word; None for a word that has none.

        Raises:
            DataError: for numbers that are not finite.
        """
        buckets = self.ngrams.find(word)
        if not buckets:
            return None
        made: np.ndarray = np.asarray(self.table[buckets], np.float32).mean(0)
        if not np.isfinite(made).all():
            what = f"the vectors of n-grams of {word[:40]!r} have numbers that are not finite"
            raise DataError(what, fix="make or copy the file of these vectors again")
        return made
