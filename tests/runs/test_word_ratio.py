"""Tokens a word: counted by white space where a tokenizer is, else guessed by its size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import plmctl.runs.word_ratio as word_ratio
from plmctl.config.compose import compose
from plmctl.runs.word_ratio import count_text, describe_passes, find_word_ratio, guess_ratio
from plmctl.text.tokenizer import Tokenizer


def test_a_guess_falls_with_the_vocabulary() -> None:
    sizes = [50, 300, 2048, 3000, 8192, 30522, 250_000]
    tokens = [guess_ratio(size).tokens for size in sizes]
    assert tokens == sorted(tokens, reverse=True)
    assert (tokens[2], tokens[4]) == (pytest.approx(2.1), pytest.approx(1.55))
    assert guess_ratio(2048).describe().endswith("a word, a guess from 2,048 tokens of vocabulary")


def test_a_tokenizer_counts_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [("abc de. " * 9).strip(), ("fghi jkl mnop. " * 5).strip()]
    Path("t.txt").write_text("\n\n".join(lines))
    tokenizer = Tokenizer.train(lines * 9, kind="char", vocab_size=40)
    tokenizer.save("letters")
    words = [
        "size=tiny",
        f"tokenizer.path={os.curdir}/letters",
        "data.path=t.txt",
        "train.words=99",
    ]
    ratio = find_word_ratio(compose("pretrain", "bert", words))
    expected = sum(len(tokenizer.encode(line)) for line in lines) / len(" ".join(lines).split())
    assert (ratio.tokens, ratio.guessed_from) == (pytest.approx(expected), None)


@pytest.mark.parametrize(
    ("text", "length", "told"),
    [
        ("ab cd ef.\n" * 50, "train.words=300", "about 2, of 150 words"),
        ("ab cd ef.\n" * 50, "train.tokens=9e2", "of 150 words"),
        (
            "一二三四五六七八九十一二三四五六\n" * 50,
            "train.tokens=9e2",
            "",
        ),  # nobody knows its words
    ],
)
def test_a_budget_in_passes_over_the_text(
    text: str, length: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text(text)
    spec = compose("pretrain", "bert", ["size=tiny", "data.path=t.txt", length])
    found = describe_passes(spec, 900, count_text(spec))
    assert found.endswith(told)
    assert bool(found) == bool(told)


def test_passes_over_a_long_text_follow_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(word_ratio, "LONG", 1000)
    Path("t.txt").write_text("ab cd ef.\n" * 5000)
    words = ["size=tiny", "data.path=t.txt", "train.words=30000"]
    spec = compose("pretrain", "bert", words)
    told = describe_passes(spec, 1, count_text(spec))
    assert told == "about 2, of 15,000 words, a guess from its beginning"


def test_held_out_tokens_are_a_share_or_about_five_thousand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one two three four\n" * 25_000)  # 100,000 words
    monkeypatch.setattr(word_ratio, "find_word_ratio", lambda spec: word_ratio.WordRatio(2.0))

    def count(*words: str) -> int | None:
        spec = compose("pretrain", "bert", [f"data.path={text}", *words])
        return word_ratio.count_held_out(spec, word_ratio.count_text(spec)[0])

    assert count() == 5000
    assert count("data.valid_share=0.1") == 20_000
    assert count("data.valid_share=0") == 0
    assert count(f"data.valid_path={text}") is None
