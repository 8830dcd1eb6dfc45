"""Sets of 64-bit hashes in bounded memory, and hashes of many stretches of an array at once."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np

ROOM = 1 << 22  # different hashes in memory
_BASE = 0x9E3779B97F4A7C15  # odd, so it has an inverse modulo 2^64
_ALL = (1 << 64) - 1


def hash_texts(texts: Iterable[str]) -> np.ndarray:
    """[n] uint64, the same in every process."""
    digests = (
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts
    )
    return np.frombuffer(b"".join(digests), np.uint64)


def mix_bits(values: np.ndarray) -> np.ndarray:
    """Whole numbers to evenly spread hashes, one to one (Steele et al., 2014: SplitMix64)."""
    x = values.astype(np.uint64) + np.uint64(_BASE)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hash_stretches(units: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The hash of each `units[start:end]` [m]; equal stretches have equal hashes wherever they are.

    A polynomial modulo 2^64: with `H[i] = sum_{k<i} u[k] b^k` it is `(H[end] - H[start]) b^-start`,
    then mixed.
    """
    power = np.full(len(units) + 1, _BASE, np.uint64)
    power[0] = 1
    np.multiply.accumulate(power, out=power)
    prefix = np.zeros(len(units) + 1, np.uint64)
    np.cumsum(mix_bits(units) * power[:-1], out=prefix[1:])
    inverse = np.full(len(units) + 1, pow(_BASE, -1, 1 << 64), np.uint64)
    inverse[0] = 1
    np.multiply.accumulate(inverse, out=inverse)
    return mix_bits(
        (prefix[end] - prefix[start]) * inverse[start] + (end - start).astype(np.uint64)
    )


class Repeats:
    """Counts how often each hash occurs.

    If there are more than `room` different hashes, only those in the lower half of the hash space
    are kept, and so on. All copies of one hash are kept or dropped together, so shares stay
    unbiased. `kept` is the share of the hash space.
    """

    def __init__(self, room: int = ROOM) -> None:
        self._room, self._limit = room, _ALL
        self.hashes, self.counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._waiting: list[np.ndarray] = []
        self._size = self.seen = 0

    def add(self, hashes: np.ndarray) -> None:
        """Add hashes; they may be counted later."""
        self.seen += len(hashes)
        self._waiting.append(hashes[hashes <= np.uint64(self._limit)])
        self._size += len(self._waiting[-1])
        if self._size >= self._room:
            self.count_waiting()

    def count_waiting(self) -> None:
        """Count the hashes that were added since the last call."""
        new, counts = np.unique(
            np.concatenate([*self._waiting, np.zeros(0, np.uint64)]), return_counts=True
        )
        self._waiting, self._size = [], 0
        merged, index = np.unique(np.concatenate([self.hashes, new]), return_inverse=True)
        weights = np.concatenate([self.counts, counts])
        self.hashes = merged
        self.counts = np.bincount(index, weights, len(merged)).astype(np.int64)
        while len(self.hashes) > self._room:
            self._cut(self._limit // 2)

    def _cut(self, limit: int) -> None:
        self._limit = limit
        end = int(np.searchsorted(self.hashes, np.uint64(limit), side="right"))
        self.hashes, self.counts = self.hashes[:end], self.counts[:end]

    @property
    def kept(self) -> float:
        """The share of the hash space that is still counted."""
        return (self._limit + 1) / (_ALL + 1)

    @property
    def share(self) -> float:
        """The share of the added hashes that repeat an earlier one."""
        self.count_waiting()
        return 1 - len(self.hashes) / int(self.counts.sum()) if len(self.hashes) else 0.0

    def count(self, one: np.uint64) -> int:
        """How often a hash occurred; 0 also if it is not kept."""
        self.count_waiting()
        index = int(np.searchsorted(self.hashes, one))
        return (
            int(self.counts[index]) if index < len(self.hashes) and self.hashes[index] == one else 0
        )

    def shared_with(self, other: Repeats) -> float:
        """The share of the hashes added here that were added to `other` too."""
        self.count_waiting()
        other.count_waiting()
        limit = np.uint64(min(self._limit, other._limit))
        mine = self.hashes <= limit
        both = np.isin(self.hashes[mine], other.hashes, assume_unique=True)
        return float(self.counts[mine][both].sum() / max(1, self.counts[mine].sum()))
