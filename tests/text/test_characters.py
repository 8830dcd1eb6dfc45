"""The characters of words: against the published table of ids, written as a literal loop."""

from __future__ import annotations

import numpy as np
import pytest

from plmctl.text.characters import SIZE, Characters
from plmctl.text.tokenizer import Tokenizer
from tests.text.test_tokenizer import CHINESE, ODD, TEXTS

WORDS = Tokenizer.train([*TEXTS[:300], CHINESE], kind="word", vocab_size=800)
SPACED = Tokenizer.train(TEXTS[:300], kind="word", vocab_size=800, punctuation=False)


def by_hand(word: str, width: int = 50) -> list[int]:
    """bilm/data.py: bytes 0-255, begin of word 258, end 259, pad 260, the word cut to width - 2
    bytes; and one more of each.
    """
    row = [260] * width
    row[0] = 258
    content = word.encode("utf-8")[: width - 2]
    for place, byte in enumerate(content, 1):
        row[place] = byte
    row[len(content) + 1] = 259
    return [number + 1 for number in row]


def test_rows_by_hand() -> None:
    view = Characters(words=SPACED)
    words = ["the", "naïve", "北京大学", "🙂", "x" * 47, "x" * 48, "y" * 49, "é" * 40, "Word."]
    found = view.encode(" ".join(words))
    assert found.shape == (9, 50)
    assert found.tolist() == [by_hand(word) for word in words]
    assert found.max() < SIZE
    assert Characters(words=SPACED, max_characters=5).encode("abcdef").tolist() == [
        by_hand("abcdef", 5)
    ]
    assert view.encode("cat")[0, :6].tolist() == [259, 100, 98, 117, 260, 261]
    assert view.encode("").shape == (0, 50)


def test_the_words_are_those_of_the_text() -> None:
    view = Characters(words=WORDS)
    text = "Unheard-of wörds, 北京 in 2021!"
    ids, spans = view.encode_offsets(text)
    words = ["Unheard", "-", "of", "wörds", ",", "北", "京", "in", "2021", "!"]
    assert [text[start:end] for start, end in spans] == view.pieces(ids) == words
    assert view.decode(ids) == " ".join(words)
    assert [rows.tolist() for rows in view.encode_batch([text, "a"])] == [
        ids.tolist(),
        [by_hand("a")],
    ]
    assert len(WORDS.encode(text)) == len(ids)
    for text in [*ODD, *TEXTS[:50]]:
        assert view.decode(view.encode(text)).split() == [
            word.encode("utf-8")[:48].decode("utf-8", "ignore")
            for start, end in WORDS.encode_offsets(text)[1]
            if (word := text[start:end])
        ]


def test_the_table_of_a_vocabulary() -> None:
    view, vocab = Characters(words=WORDS), WORDS.vocab
    table = view.table()
    assert table.shape == (vocab.size, 50)
    assert (table[vocab.pad] == 0).all()
    assert table[vocab.id("bos"), :4].tolist() == [259, 257, 260, 261]
    assert table[vocab.id("eos"), :4].tolist() == [259, 258, 260, 261]
    text = "the value of the statement"
    ids = WORDS.encode(text)
    assert vocab.unk not in ids
    assert (table[ids] == view.encode(text)).all()
    around = np.array([vocab.bos, *ids, vocab.eos, vocab.pad])
    assert view.pieces(table[around]) == ["[CLS]", *text.split(), "[SEP]", "[PAD]"]
    assert view.decode(table[around]) == text


def test_a_word_needs_room() -> None:
    with pytest.raises(ValueError, match="at least 3 positions"):
        Characters(words=WORDS, max_characters=2)
