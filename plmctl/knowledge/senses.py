"""The possible supersenses of a word (Levine et al., 2020, SenseBERT): WordNet's classes of the
synsets of its lemmas.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from plmctl.core.parts import Opens, base_of, part_of
from plmctl.core.values import Count, Whole
from plmctl.knowledge.known import TextSample, describe_known
from plmctl.knowledge.wordnet import SUPERSENSES, WordNet
from plmctl.text.function_words import ENGLISH
from plmctl.text.vocab import Vocab


@base_of("senses")
class Senses:
    """The classes that words may have, at most 63 of them, each a bit of a number.

    `names`: the classes, the lowest bit first; `path`: the path of the dictionary, for messages.
    """

    names: tuple[str, ...]
    path: str | None = None

    def of_word(self, word: str) -> int:
        """The bits of the classes of a word; 0 for a word without any."""
        raise NotImplementedError(type(self).__name__)

    def of_vocab(self, vocab: Vocab) -> np.ndarray:
        """[V] int64: the bits of each token that may stand for a whole word, else 0."""
        words = zip(vocab.texts, vocab.word_start, strict=True)
        bits = [self.of_word(text) if begins and text else 0 for text, begins in words]
        return np.array(bits, np.int64)

    def describe_known(self, text: TextSample) -> str:
        """A line on how many words of a text have senses; DataError where none has."""
        known, total = text.count_words(self.of_word)
        fix = "text in the language of the lexicon"
        what = "words of the text have senses"
        return describe_known(known, total, what, file=self.path, fix=fix)


@part_of("senses")
class WordNetSenses(Senses):
    """`A(w)`: the lexicographer files of all synsets of w, of all parts of speech.

    Empty for words of fewer than `shortest` characters, and for function words. (Levine et al.,
    2020, arXiv:1908.05646, sec. 3.2: none up to 3 characters, none for stop words.) Its control is
    `shuffled`: words that have senses exchange them with each other, by this seed; so they are
    as many, as frequent and as ambiguous as before, and mean nothing.
    Differs: the paper does not say which words are stop words; these are the English function
    words of `plmctl.text.function_words`. A word that is not in the vocabulary takes, when
    shuffled, the senses of one that is.

    Args:
        path: The path of WordNet's dictionary; None: the usual path.
    """

    names = SUPERSENSES
    opens: ClassVar[Opens] = {"path": WordNet.find}

    def __init__(
        self,
        *,
        path: str | None = None,
        shortest: Count = 4,
        stop_words: bool = True,
        shuffled: Whole | None = None,
    ) -> None:
        self.path, self.shortest, self.shuffled = path, shortest, shuffled
        self.without = ENGLISH if stop_words else frozenset()
        self._pool: np.ndarray | None = None
        self._true = lru_cache(maxsize=1 << 16)(self._look_up)

    @cached_property
    def wordnet(self) -> WordNet:
        """The dictionary, read when it is first asked."""
        return WordNet.open(self.path)

    def of_word(self, word: str) -> int:
        bits = self._true(word)
        if not bits or self._pool is None or not len(self._pool):
            return bits
        return int(self._pool[zlib.crc32(f"{self.shuffled} {word}".encode()) % len(self._pool)])

    def of_vocab(self, vocab: Vocab) -> np.ndarray:
        self._pool = None
        bits = super().of_vocab(vocab)
        if self.shuffled is not None:
            some = np.flatnonzero(bits)
            bits[some] = np.random.default_rng(self.shuffled).permutation(bits[some])
            self._pool = bits[some]
        return bits

    def _look_up(self, word: str) -> int:
        word = word.lower()
        if len(word) < self.shortest or word in self.without:
            return 0
        return pack(self.wordnet.supersenses(word))


def pack(numbers: Iterable[int]) -> int:
    """The bits of classes: [0, 3] gives 9."""
    return sum(1 << number for number in set(numbers))


def unpack(bits: np.ndarray, count: int) -> np.ndarray:
    """[...] int64 -> [..., count] bool: which classes are set."""
    chosen: np.ndarray = (bits[..., None] >> np.arange(count)) & 1 > 0
    return chosen
