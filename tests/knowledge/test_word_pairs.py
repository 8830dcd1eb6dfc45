"""Pairs of related words: which a vocabulary can spell, which are held out, and their control."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError, DataError
from plmctl.knowledge.spelled import Speller
from plmctl.knowledge.word_pairs import PairTable, WordNetPairs
from plmctl.text.roles import BERT, make_vocabulary
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.vocab import Vocab
from tests.knowledge.tiny_wordnet import write

PIECES = ["dog", "wolf", "animal", "beast", "bass", "ho", "##rse", "domestic", "run", "flow"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write(tmp_path_factory.mktemp("wordnet")))


def vocab_of(pieces: list[str]) -> Vocab:
    roles = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return make_vocabulary([*roles, *pieces], BERT, "wordpiece")


def named(table: PairTable) -> set[tuple[str, str]]:
    return {(table.words[a], table.words[b]) for a, b in table.pairs.tolist()}


def test_words_are_spelled_as_wordpiece_spells_them(small_text: Path) -> None:
    lines = small_text.read_text().splitlines()[:60]
    cfg = compose("tokenize", None, ["tokenizer=wordpiece", "tokenizer.vocab_size=300", "out=x"])
    tokenizer = Tokenizer.learn(lines, build(cfg.tokenizer, path="tokenizer"))
    vocab = tokenizer.vocab
    speller = Speller(vocab.texts, vocab.word_start.tolist())
    for word in ("strings", "object", "exceptional value", "Modules", "zebra crossing"):
        assert speller.spell(word) == tokenizer.encode(word)
    assert speller.spell("☃") == []
    assert speller.spell("") == []


def test_pairs_that_the_vocabulary_can_spell(folder: str) -> None:
    table = WordNetPairs(path=folder, held_out=0.0).of_vocab(vocab_of(PIECES))
    assert {min(pair, pair[::-1]) for pair in named(table)} == {
        *[("animal", "beast"), ("animal", "dog"), ("beast", "dog"), ("animal", "bass")],
        *[("bass", "beast"), ("animal", "domestic_dog"), ("beast", "domestic_dog")],
        *[("animal", "wolf"), ("beast", "wolf"), ("animal", "horse"), ("beast", "horse")],
        *[("dog", "domestic_dog"), ("flow", "run")],
    }
    number = table.words.index("horse")
    assert list(table.ids[number]) == [10, 11]
    assert not table.held.any()
    first, second = table.pairs[0]
    assert table.related(np.array([first, second]), np.array([second, first])).all()
    dog, run = table.words.index("dog"), table.words.index("run")
    assert not table.related(np.array([dog]), np.array([run])).any()


def test_words_are_held_out_not_pairs(folder: str) -> None:
    lexicon = WordNetPairs(path=folder, held_out=0.4)
    table = lexicon.of_vocab(vocab_of(PIECES))
    trained = set(table.pairs[~table.held].ravel().tolist())
    assert 0 < table.held.sum() < len(table.held)
    for pair in table.pairs[table.held].tolist():
        assert set(pair) - trained  # training sees no more than one of the two
    more = WordNetPairs(path=folder, held_out=0.4).of_vocab(vocab_of([*PIECES, "good", "bad"]))
    assert held_pairs(table) <= held_pairs(more)  # whatever the vocabulary is


def held_pairs(table: PairTable) -> set[tuple[str, str]]:
    pairs = table.pairs[table.held].tolist()
    return {(table.words[a], table.words[b]) for a, b in pairs}


def test_shuffled_words_keep_the_shape_of_the_lexicon(folder: str) -> None:
    vocab = vocab_of(PIECES)
    true = WordNetPairs(path=folder).of_vocab(vocab)
    other = WordNetPairs(path=folder, shuffled=0).of_vocab(vocab)
    assert named(other) != named(true)

    def degrees(table: PairTable) -> list[int]:
        return sorted(Counter(table.pairs.ravel().tolist()).values())

    assert degrees(other) == degrees(true)


def test_random_pairs_are_as_many(folder: str) -> None:
    vocab = vocab_of(PIECES)
    true = WordNetPairs(path=folder).of_vocab(vocab)
    others = [WordNetPairs(path=folder, random=seed).of_vocab(vocab) for seed in range(9)]
    seen = Counter(word for table in others for word in table.pairs.ravel().tolist())
    assert len(seen) == len(true.words)  # every word is drawn
    for table in others:
        assert table.words == true.words
        assert table.pairs.shape == true.pairs.shape
        assert (table.pairs[:, 0] != table.pairs[:, 1]).all()
    assert len({named_pairs(table) for table in others}) > 1
    with pytest.raises(ConfigError, match="one control of the two"):
        WordNetPairs(path=folder, random=0, shuffled=0)


def named_pairs(table: PairTable) -> frozenset[tuple[int, ...]]:
    return frozenset(map(tuple, table.pairs.tolist()))


def test_mistakes(folder: str) -> None:
    with pytest.raises(ConfigError, match="did you mean 'hypernym'"):
        WordNetPairs(path=folder, relations=["hypernyms"])
    with pytest.raises(DataError, match="cannot spell"):
        WordNetPairs(path=folder).of_vocab(vocab_of(["x"]))
