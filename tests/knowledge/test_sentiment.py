"""Lexicons of polarity: their layouts, the score of a word of several senses, and the control."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from plmctl.core.errors import AbsentData, ConfigError, DataError
from plmctl.knowledge.sentiment import PARTS, POLARITIES, SentimentLexicon
from plmctl.text.roles import BERT, make_vocabulary

FILE = Path(__file__).parents[1] / "fixtures" / "sentiment.tsv"


def named(lexicon: SentimentLexicon, word: str) -> tuple[str, str]:
    entry = lexicon.of_word(word)
    return POLARITIES[entry.polarity], PARTS[entry.part]


def test_sentiwordnet(tmp_path: Path) -> None:
    lexicon = SentimentLexicon(path=str(FILE))
    assert named(lexicon, "Good") == ("positive", "adjective")
    assert named(lexicon, "error") == ("negative", "noun")
    assert named(lexicon, "raise") == ("neutral", "verb")  # as much of both
    assert named(lexicon, "table") == ("neutral", "other")
    # 0.5 / 1 - 0.8 / 2 > 0: the first sense counts more
    rows = ["n\t1\t0.5\t0\tplay#1\tx", "v\t2\t0\t0.8\tplay#2\tx", "v\t3\t0\t0\tplay#3\tx"]
    (tmp_path / "swn.txt").write_text("\n".join(rows))
    assert named(SentimentLexicon(path=str(tmp_path / "swn.txt")), "play") == ("positive", "verb")


def test_scores_and_opinion_lists(tmp_path: Path) -> None:
    (tmp_path / "scores.txt").write_text("good\t1.9\t0.9\t[2, 1]\nbad\t-2\nso\t0\n")
    scores = SentimentLexicon(path=str(tmp_path / "scores.txt"))
    assert [named(scores, word)[0] for word in ("good", "bad", "so")] == [
        *("positive", "negative", "neutral")
    ]
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "positive-words.txt").write_text("; list\n\ngood\nfine\n")
    with pytest.raises(DataError, match=r"no file \*negative\*"):
        SentimentLexicon(path=str(folder)).of_word("x")
    (folder / "negative-words.txt").write_text("; list\nbad\n")
    lists = SentimentLexicon(path=str(folder))
    assert named(lists, "fine") == ("positive", "other")
    assert named(lists, "bad") == ("negative", "other")


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(AbsentData, match="no lexicon of polarities is named"):
        SentimentLexicon().of_word("x")
    with pytest.raises(AbsentData, match="no such lexicon"):
        SentimentLexicon(path=str(tmp_path / "no")).of_word("x")
    (tmp_path / "a.txt").write_text("good\t1\nbad\n")
    with pytest.raises(DataError, match=r"a\.txt:2: neither a synset nor a word with a score"):
        SentimentLexicon(path=str(tmp_path / "a.txt")).of_word("x")
    (tmp_path / "b.txt").write_text("# nothing\n")
    with pytest.raises(DataError, match="no words in it"):
        SentimentLexicon(path=str(tmp_path / "b.txt")).of_word("x")


def test_shuffled_words_exchange_their_entries() -> None:
    true = SentimentLexicon(path=str(FILE)).entries
    others = [SentimentLexicon(path=str(FILE), shuffled=seed).entries for seed in range(5)]
    for other in others:
        assert other.keys() == true.keys()
        assert Counter(other.values()) == Counter(true.values())
    assert any(other != true for other in others)


def test_random_entries_of_the_same_words() -> None:
    true = SentimentLexicon(path=str(FILE)).entries
    others = [SentimentLexicon(path=str(FILE), random=seed).entries for seed in range(80)]
    counts = Counter(entry for other in others for entry in other.values())
    drawn = 80 * len(true)
    for polarity in range(3):  # as likely as each other
        share = sum(n for entry, n in counts.items() if entry.polarity == polarity) / drawn
        assert share == pytest.approx(1 / 3, abs=4 * (2 / 9 / drawn) ** 0.5)
    assert all(other.keys() == true.keys() for other in others)
    assert SentimentLexicon(path=str(FILE), random=3).entries == others[3]
    with pytest.raises(ConfigError, match="one control of the two"):
        SentimentLexicon(random=0, shuffled=0)


def test_tokens_that_are_words() -> None:
    vocab = make_vocabulary(["[PAD]", "[UNK]", "good", "##good", "error"], BERT, "wordpiece")
    found = SentimentLexicon(path=str(FILE)).of_vocab(vocab)
    assert np.array_equal(found, [[0, 0], [0, 0], [2, 3], [0, 0], [1, 1]])
