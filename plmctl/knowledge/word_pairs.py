"""Pairs of words that stand in a relation (Lauscher et al., 2020, LIBERT): synonyms, words and
their hypernyms.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.parts import Opens, base_of, part_of
from plmctl.core.values import Rate, Whole
from plmctl.knowledge.spelled import Speller
from plmctl.knowledge.wordnet import RELATIONS, WordNet
from plmctl.text.vocab import Vocab


@dataclass(frozen=True)
class PairTable:
    """Words of a vocabulary, and the pairs of them that stand in a relation.

    Args:
        words: N words.
        ids: the tokens of each word.
        pairs: [n, 2] numbers of words.
        held: [n] bool, pairs with a word that training never sees.
    """

    words: Sequence[str]
    ids: Sequence[Sequence[int]]
    pairs: np.ndarray
    held: np.ndarray

    @cached_property
    def _known(self) -> np.ndarray:
        """Every pair as one number, in both orders, sorted."""
        first, second = self.pairs.T
        count = len(self.words)
        return np.unique(np.concatenate([first * count + second, second * count + first]))

    def related(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """[...] bool: whether words of these numbers are a pair, in either order."""
        asked = first * len(self.words) + second
        place = np.searchsorted(self._known, asked).clip(max=len(self._known) - 1)
        found: np.ndarray = self._known[place] == asked
        return found


@base_of("pairs")
class WordPairs:
    """Words and their relations, whatever the vocabulary is."""

    def of_vocab(self, vocab: Vocab) -> PairTable:
        """The pairs whose words the vocabulary can spell."""
        raise NotImplementedError(type(self).__name__)


@part_of("pairs")
class WordNetPairs(WordPairs):
    """Pairs of WordNet: synonyms, and words with their direct hypernyms.

    (Lauscher et al., 2020, sec. 3.1, LIBERT: 1,023,082 synonyms of WordNet and Roget's thesaurus,
    326,187 direct hypernyms.) Words are held out, not pairs alone: a share of them, by a hash of
    their spelling. Its controls are `shuffled` and `random`. With `shuffled`, words are permuted in
    all pairs, so that a word has as many partners as some word had. With `random`, as many pairs of
    words are drawn at random.

    Args:
        path: The path of WordNet's dictionary; None: the usual path.
        relations: The relations: some of synonym, hypernym, antonym.
        held_out: share of the words that training never sees.
        shuffled: a seed; None: pairs are as WordNet has them.
        random: a seed of random pairs; None: no.
    """

    opens: ClassVar[Opens] = {"path": WordNet.find}

    def __init__(
        self,
        *,
        path: str | None = None,
        relations: Sequence[str] = ("synonym", "hypernym"),
        held_out: Rate = 0.05,
        shuffled: Whole | None = None,
        random: Whole | None = None,
    ) -> None:
        if shuffled is not None and random is not None:
            raise ConfigError("random", random, "null, or shuffled=null: one control of the two")
        for name in relations:
            if name not in RELATIONS:
                allowed = f"of {', '.join(RELATIONS)}{nearest(name, RELATIONS)}"
                raise ConfigError("relations", list(relations), allowed)
        self.path, self.relations = path, tuple(relations)
        self.held_out, self.shuffled, self.random = held_out, shuffled, random

    def of_vocab(self, vocab: Vocab) -> PairTable:
        starts = tuple(np.asarray(vocab.word_start).tolist())
        settings = self.relations, self.held_out, self.shuffled, self.random
        return _make_table(WordNet.open(self.path), *settings, vocab.texts, starts)


# the noise, that of validation and the objective ask for the same one
@lru_cache(maxsize=4)
def _make_table(
    wordnet: WordNet,
    relations: tuple[str, ...],
    held_out: float,
    shuffled: int | None,
    random: int | None,
    texts: tuple[str, ...],
    starts: tuple[bool, ...],
) -> PairTable:
    known = _read_pairs(wordnet, relations)
    speller, words, ids = Speller(texts, starts), [], []
    for word in dict.fromkeys(word for pair in known for word in pair):
        if spelled := speller.spell(word.replace("_", " ")):
            words.append(word)
            ids.append(spelled)
    number = {word: n for n, word in enumerate(words)}
    chosen = [(number[a], number[b]) for a, b in known if a in number and b in number]
    if not chosen:
        what = "the vocabulary cannot spell both words of any pair"
        raise DataError(what, fix="a tokenizer that was learnt from English text")
    pairs = np.array(chosen, np.int64)
    if shuffled is not None:
        pairs = np.random.default_rng(shuffled).permutation(len(words))[pairs]
    if random is not None and len(words) > 1:
        generator = np.random.default_rng(random)
        first = generator.integers(len(words), size=len(pairs))
        step = generator.integers(1, len(words), size=len(pairs))  # to another word
        pairs = np.stack([first, (first + step) % len(words)], 1)
    unseen = np.array([zlib.crc32(word.lower().encode()) / 2**32 < held_out for word in words])
    return PairTable(words, ids, pairs, np.logical_or.reduce(unseen[pairs], axis=1))


@lru_cache(maxsize=2)
def _read_pairs(wordnet: WordNet, relations: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(pair for name in relations for pair in wordnet.pairs(name))
