"""Random numbers that do not depend on the order of rows: a hash of (seed, epoch, row key, name,
column).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

# Weyl step and multiplier of the 64-bit mixer (Evensen's and degski's published constants); uint64
# arithmetic wraps.
STEP = np.uint64(0x9E3779B97F4A7C15)
FACTOR = np.uint64(0xD6E8FEB86659FD93)
HALF = np.uint64(32)
BITS = 40  # a number that a network draws has so many


class Draws:
    """Counter-based random numbers: the same (seed, epoch, path, key, name, column) always gives
    the same bits.

    `word(key, name, c) = mix(mix(key + digest(seed, epoch, path, name)) + c * STEP)`; each 64-bit
    word gives two columns. Two of about two billion rows are likely to share a state.
    """

    def __init__(self, seed: int, epoch: int, path: tuple[int | str, ...] = ()) -> None:
        self.seed, self.epoch, self.path = seed, epoch, path

    def child(self, place: int | str) -> Draws:
        """Independent numbers for one of several parts."""
        return Draws(self.seed, self.epoch, (*self.path, place))

    def repeat(self, epochs: int) -> Draws:
        """The same numbers again after `epochs` epochs (BERT's copies of the corpus, each masked
        once).
        """
        return Draws(self.seed, self.epoch % epochs, self.path)

    def words(self, key: np.ndarray, name: str, columns: int) -> np.ndarray:
        """uint64 [n, columns], every bit used."""
        counter = np.arange(columns, dtype=np.uint64) * STEP
        return _mix(self._state(key, name)[:, None] + counter)

    def bits(self, key: np.ndarray, name: str, columns: int) -> np.ndarray:
        """uint32 [n, columns]."""
        words = self.words(key, name, (columns + 1) // 2)
        return words.astype("<u8", copy=False).view("<u4")[:, :columns]

    def words_at(
        self, key: np.ndarray, name: str, row: np.ndarray, column: np.ndarray
    ) -> np.ndarray:
        """uint64 [m]: only `words(key, name, ...)[row[i], column[i]]`, for a few of many
        columns.
        """
        return _mix(self._state(key, name)[row] + column.astype(np.uint64) * STEP)

    def uniform(self, key: np.ndarray, name: str, *shape: int) -> np.ndarray:
        """float32 [n, *shape] in [0, 1)."""
        columns = int(np.prod(shape, dtype=np.int64))
        return unit(self.bits(key, name, columns)).reshape(len(key), *shape)

    def integers(
        self, key: np.ndarray, name: str, high: int | np.ndarray, *shape: int
    ) -> np.ndarray:
        """int64 [n, *shape] in [0, high), high < 2**32 (a number, or an array that broadcasts)."""
        columns = int(np.prod(shape, dtype=np.int64))
        return below(self.bits(key, name, columns).reshape(len(key), *shape), high)

    def _state(self, key: np.ndarray, name: str) -> np.ndarray:
        text = repr((self.seed, self.epoch, self.path, name)).encode()
        digest = np.frombuffer(hashlib.blake2b(text, digest_size=8).digest(), dtype="<u8")
        return _mix(np.asarray(key, dtype=np.int64).astype(np.uint64) + digest)


def unit(bits: np.ndarray) -> np.ndarray:
    """float32 in [0, 1) from uint32: the top 24 bits, which a float32 holds exactly."""
    return (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def below(bits: np.ndarray, high: int | np.ndarray) -> np.ndarray:
    """int64 in [0, high) from uint32 (multiply and shift; uneven by less than high / 2**32)."""
    return ((bits.astype(np.uint64) * np.asarray(high).astype(np.uint64)) >> HALF).astype(np.int64)


def whole_at(draw: Tensor, column: Tensor) -> Tensor:
    """int64 in [0, 2^40) from the numbers of rows (`values.draw`) and columns: `mix(draw + column *
    STEP)`, its upper bits, on their device.
    """
    x = draw + column * _signed(STEP)
    for _ in range(2):
        x = (x ^ _upper(x, 32)) * _signed(FACTOR)
    return _upper(x ^ _upper(x, 32), BITS)


def _upper(x: Tensor, bits: int) -> Tensor:
    """The upper bits of 64; torch shifts the sign in from the left."""
    return (x >> (64 - bits)) & ((1 << bits) - 1)


def _signed(x: np.uint64) -> int:
    """The int64 that has the same bits."""
    return int(x.astype(np.int64))


def _mix(x: np.ndarray) -> np.ndarray:
    """A bijection of 64 bits in which each input bit flips half of the output; works in place on
    `x`.
    """
    shifted = x >> HALF
    x ^= shifted
    for _ in range(2):
        x *= FACTOR
        np.right_shift(x, HALF, out=shifted)
        x ^= shifted
    return x
