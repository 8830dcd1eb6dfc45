"""The senses that words may have: those of WordNet, without short and function words; the control
exchanges them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from plmctl.knowledge.senses import WordNetSenses, pack, unpack
from plmctl.knowledge.wordnet import SUPERSENSES
from plmctl.text.roles import BERT, GPT2, make_vocabulary
from plmctl.text.vocab import Vocab
from tests.knowledge.tiny_wordnet import write

WORDS = ["list", "dogs", "##list", "bass", "into", "run", "values", "Wolves", "strings", "names"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write(tmp_path_factory.mktemp("wordnet")))


def vocab_of(words: list[str]) -> Vocab:
    return make_vocabulary(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words], BERT, "wordpiece"
    )


def named(bits: int) -> set[str]:
    chosen = unpack(np.array(bits), len(SUPERSENSES))
    return {name for name, yes in zip(SUPERSENSES, chosen, strict=True) if yes}


def test_bits() -> None:
    assert pack([0, 3, 3]) == 9
    assert unpack(np.array([9, 1 << 44]), 45).nonzero()[1].tolist() == [0, 3, 44]


def test_which_words_have_senses(folder: str) -> None:
    senses = WordNetSenses(path=folder)
    found = dict(zip(WORDS, senses.of_vocab(vocab_of(WORDS))[5:].tolist(), strict=True))
    assert named(found["dogs"]) == {"noun.animal", "verb.motion"}
    assert named(found["bass"]) == {"noun.animal", "noun.person", "noun.artifact"}
    assert named(found["Wolves"]) == {"noun.animal"}
    assert found["##list"] == 0  # continues a word
    assert found["into"] == 0  # a function word
    assert found["run"] == 0  # 3 characters
    assert not senses.of_vocab(vocab_of(WORDS))[:5].any()  # special tokens
    every = WordNetSenses(path=folder, shortest=1, stop_words=False)
    assert named(every.of_word("run")) == {"verb.motion", "verb.change"}


def test_shuffled_senses_are_those_of_other_words(folder: str) -> None:
    vocab = vocab_of(WORDS)
    true = WordNetSenses(path=folder).of_vocab(vocab)
    shuffled = [WordNetSenses(path=folder, shuffled=seed).of_vocab(vocab) for seed in range(9)]
    for each in shuffled:
        assert Counter(each.tolist()) == Counter(true.tolist())
        assert np.array_equal(each == 0, true == 0)
    assert any(not np.array_equal(each, true) for each in shuffled)
    again = WordNetSenses(path=folder, shuffled=3)
    assert np.array_equal(again.of_vocab(vocab), shuffled[3])
    assert again.of_word("axis") == again.of_word("axis")  # a word that is not in the vocabulary
    assert again.of_word("axis") in true
    assert again.of_word("qwertz") == 0


@pytest.mark.parametrize(
    ("tokens", "kind", "texts"),
    [
        (["dog", "##s"], "wordpiece", ["dog", "s"]),
        (["▁dog", "s"], "unigram", ["dog", "s"]),
        (["Ġdog", "s", "Ã©"], "byte_bpe", ["dog", "s", ""]),
    ],
)
def test_what_tokens_spell(tokens: list[str], kind: str, texts: list[str]) -> None:
    roles = GPT2 if kind == "byte_bpe" else BERT
    vocab = make_vocabulary([roles.pad, *tokens], roles, kind)
    assert list(vocab.texts) == ["", *texts]


def test_a_dictionary_that_is_not_there(tmp_path: Path) -> None:
    senses = WordNetSenses(path=str(tmp_path))  # it is read when it is asked
    assert senses.of_word("the") == 0
    with pytest.raises(Exception, match="wordnet-base"):
        senses.of_word("dogs")
