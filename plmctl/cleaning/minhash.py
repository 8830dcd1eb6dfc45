"""MinHash signatures in buckets: documents that share all hashes of one bucket are near duplicates.

Broder, 1997, "On the resemblance and containment of documents"; Leskovec et al., "Mining of Massive
Datasets", sec. 3.4. The numbers are those of FineWeb (Penedo et al., 2024, arXiv:2406.17557).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plmctl.cleaning.word_hashes import WordHashes, hash_ngrams, hash_sequences, hash_whole

NONE = 0  # the key of a document that is too short to have n-grams
_TOGETHER = 1 << 11  # n-grams whose hashes are computed at once: 112 of each fit into a cache


@dataclass(frozen=True)
class MinHash:
    """The signature of a set of word n-grams.

    Two sets of Jaccard similarity s agree in a hash with the probability s, in one of b buckets of
    r hashes with

        P(s) = 1 - (1 - s ** r) ** b

    Args:
        ngram: The number of words in an n-gram.
        buckets: b; one shared bucket is enough.
        hashes: r, the hashes of a bucket.
        seed: Chooses the hashes.
    """

    ngram: int = 5
    buckets: int = 14
    hashes: int = 8
    seed: int = 0

    def sign(self, words: np.ndarray) -> np.ndarray:
        """[buckets * hashes] uint32, the least of each hash over all n-grams; empty without one.

        Args:
            words: [N] uint64 hashes of words (`WordHashes`).
        """
        shingles = (hash_ngrams(words, self.ngram) >> np.uint64(32)).astype(np.uint32)
        if not len(shingles):
            return shingles
        flips, factors = self._permutations
        least = np.full(len(flips), 0xFFFFFFFF, np.uint32)
        for start in range(0, len(shingles), _TOGETHER):
            values = shingles[None, start : start + _TOGETHER] ^ flips
            values *= factors
            np.minimum(least, values.min(1), out=least)
        return least

    def find_keys(self, signature: np.ndarray) -> np.ndarray:
        """[buckets] uint64: equal keys mean equal hashes of a bucket; `NONE` without a
        signature.
        """
        if not len(signature):
            return np.full(self.buckets, NONE, np.uint64)
        columns = signature.reshape(self.buckets, self.hashes).T.astype(np.uint64)
        return np.maximum(hash_sequences(columns), np.uint64(1))

    @cached_property
    def _permutations(self) -> tuple[np.ndarray, np.ndarray]:
        """(bits to flip, odd factors), [K, 1] uint32 each: x -> (x ^ flip) * factor permutes the
        numbers of 32 bits.
        """
        draws = np.random.Generator(np.random.PCG64(self.seed))
        size = (self.buckets * self.hashes, 1)
        flips = draws.integers(0, 1 << 32, size, np.uint32)
        return flips, draws.integers(0, 1 << 32, size, np.uint32) | np.uint32(1)


def find_copy_keys(text: str, minhash: MinHash | None, hashes: WordHashes) -> np.ndarray:
    """[2 + buckets] uint64: equal texts share the first two, near duplicates one of the others;
    `NONE` where a text has none.
    """
    buckets = minhash.buckets if minhash else 0
    if not text.strip():  # no copy of another, but no document either
        return np.full(2 + buckets, NONE, np.uint64)
    whole = np.array(hash_whole(text), np.uint64)
    if minhash is None:
        return whole
    return np.concatenate([whole, minhash.find_keys(minhash.sign(hashes(text)))])


def estimate(one: np.ndarray, other: np.ndarray) -> float:
    """The share of hashes that two signatures have in common, which estimates the Jaccard
    similarity of their sets.
    """
    return float(np.mean(one == other)) if len(one) and len(other) else 0.0
