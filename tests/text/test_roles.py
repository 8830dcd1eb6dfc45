"""The word-start table against the rules of the original implementations."""

from __future__ import annotations

import numpy as np
import pytest

from plmctl.text.roles import BERT, GPT2, ROBERTA, Roles, find_joined, make_vocabulary, show_bytes


def starts(kind: str, roles: Roles, tokens: list[str]) -> list[bool]:
    known = [*roles.tokens, *tokens]
    return make_vocabulary(known, roles, kind).word_start[len(roles.tokens) :].tolist()


def test_wordpiece() -> None:
    assert starts("wordpiece", BERT, ["the", "##s", "中", "##é", "!"]) == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_sentencepiece_by_alberts_rule() -> None:
    tokens = ["▁the", "s", "ing", ",", "中", "é", "3", "<0x0A>", "'s", "▁", "a-b"]
    assert starts("unigram", BERT, tokens) == [
        True,
        False,
        False,
        True,
        True,
        False,  # a letter of a script with spaces goes on with its word
        True,
        True,
        True,
        True,
        False,
    ]
    assert starts("bpe", BERT, tokens) == starts("unigram", BERT, tokens)


def test_bytes() -> None:
    assert starts("byte_bpe", ROBERTA, ["Ġthe", "s", "Ċ", ",", "ä¸Ń", "¸Ń", "Ã©"]) == [
        True,
        False,
        True,
        False,
        True,
        False,
        False,
    ]


def test_characters() -> None:
    assert starts("char", BERT, ["a", " ", "中", "!", "3"]) == [False, True, True, True, False]
    assert find_joined(["a", " ", "中", "!", "3", "é", "[CLS]"]).tolist() == [
        True,
        False,
        False,
        False,
        True,
        True,
        False,
    ]


def test_specials() -> None:
    vocab = make_vocabulary([*BERT.tokens, "a"], BERT, "wordpiece")
    # unknown words may be chosen, as in BERT
    assert vocab.special.tolist() == [True, False, True, True, True, False]
    assert vocab.word_start.all()
    vocab = make_vocabulary(
        ["a", "<|endoftext|>", "<extra>"], GPT2, "byte_bpe", special=["<extra>"]
    )
    assert np.flatnonzero(vocab.special).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("Ġthe", "␣the"),
        ("âĢĻ", "’"),
        ("ä¸Ń", "中"),
        ("âĢ", "\\xe2\\x80"),  # no whole character
        ("Ċ", "\n"),
        ("[CLS]", "[CLS]"),
        ("中", "中"),  # no letter of a byte
    ],
)
def test_tokens_of_bytes_are_shown_as_text(token: str, shown: str) -> None:
    assert show_bytes(token) == shown


def test_every_byte_is_shown_as_transformers_decodes_it() -> None:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    for byte, letter in bytes_to_unicode().items():
        wanted = bytes([byte]).decode("utf-8", errors="backslashreplace").replace(" ", "␣")
        assert show_bytes(letter) == wanted
