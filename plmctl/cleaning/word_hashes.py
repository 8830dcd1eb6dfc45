"""Words of a text as numbers, and its word n-grams as numbers, for comparing many texts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from plmctl.text.letters import JOINERS, has_unspaced, normalize_spaces

KEPT = 1 << 20  # words whose hashes are remembered
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2 ** 64 / golden ratio: its multiples are spread evenly
# letters and digits of ASCII as they are, bytes of other letters too, and a space for signs
_PLAIN = bytes(code if code > 127 or chr(code).isalnum() else 32 for code in range(256))
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


def find_simple_words(text: str) -> list[bytes]:
    """The words of a text without case, marks and punctuation, in UTF-8; of scripts without spaces
    each character.
    """
    text = text.lower()
    if not text.isascii():
        text = _NOT_ASCII.sub(_simplify, unicodedata.normalize("NFD", text))
    return text.encode("utf-8", "replace").translate(_PLAIN).split()


def _simplify(run: re.Match[str]) -> str:
    return run[0].translate(_SIMPLE)


class _Simple(dict[int, str]):
    """{code of a character that is not ASCII: the text that stands for it}"""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.category(character)
        if kind in ("Mn", "Me") or character in JOINERS:
            simple = ""
        elif not (character.isalnum() or kind == "Mc"):
            simple = " "
        else:
            simple = f" {character} " if has_unspaced(character) else character
        self[code] = simple
        return simple


_SIMPLE = _Simple()


class WordHashes:
    """The hashes of words. They are the same in every process.

    Args:
        fold_numbers: A number counts as any other.
        seed: Chooses the hash.
    """

    def __init__(self, *, fold_numbers: bool = True, seed: int = 0) -> None:
        self._table = _Table(fold_numbers, seed)

    def __getstate__(self) -> tuple[bool, int]:
        return self._table.fold_numbers, self._table.seed

    def __setstate__(self, state: tuple[bool, int]) -> None:
        self._table = _Table(*state)

    def settings(self) -> dict[str, Any]:
        """The settings as JSON."""
        return {"fold_numbers": self._table.fold_numbers, "seed": self._table.seed}

    def __call__(self, text: str) -> np.ndarray:
        """[N] uint64, a hash of each word of a text."""
        words = find_simple_words(text)
        if len(self._table) > KEPT:
            self._table.clear()
        return np.fromiter(map(self._table.__getitem__, words), np.uint64, len(words))


class _Table(dict[bytes, int]):
    """The hashes of the words seen so far."""

    def __init__(self, fold_numbers: bool, seed: int) -> None:
        super().__init__()
        self.fold_numbers, self.seed = fold_numbers, seed
        self._key = seed.to_bytes(8, "little")

    def __missing__(self, word: bytes) -> int:
        number = self.fold_numbers and word.decode("utf-8", "replace").isdecimal()
        self[word] = value = _hash_bytes(b"0" if number else word, self._key)
        return value


def _hash_bytes(content: bytes, key: bytes = b"", size: int = 8) -> int:
    return int.from_bytes(blake2b(content, digest_size=size, key=key).digest(), "little")


def hash_ngrams(words: np.ndarray, n: int) -> np.ndarray:
    """[max(0, N - n + 1)] uint64: a hash of each n-gram of words; their order matters.

    Args:
        words: [N] uint64 hashes of words.
        n: The number of words in an n-gram.
    """
    count = max(0, len(words) - n + 1)
    return hash_sequences([words[k : k + count] for k in range(n)])


def hash_sequences(columns: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """[N] uint64: a hash of each sequence columns[0][i], columns[1][i], ...

        h(i) = mix(sum over k of columns[k][i] * odd ** (k + 1))  modulo 2 ** 64

    Args:
        columns: Arrays [N] of uint64.
    """
    total, factor = np.zeros(len(columns[0]), np.uint64), _ODD
    with np.errstate(over="ignore"):
        for column in columns:
            total += column * factor
            factor *= _ODD
        total ^= total >> np.uint64(32)
        total *= np.uint64(0xD6E8FEB86659FD93)
        total ^= total >> np.uint64(29)
    return total


def hash_whole(text: str) -> tuple[int, int]:
    """128 bits of a text without case and with one space for any white space."""
    spelt = normalize_spaces(text).lower().encode("utf-8", "surrogatepass")
    value = _hash_bytes(spelt, size=16)
    return value & (1 << 64) - 1, value >> 64
