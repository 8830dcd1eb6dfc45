"""Word starts of characters, and of Chinese words by a segmenter."""

from __future__ import annotations

import sys

import pytest
from test_tokenizer import CHINESE, TEXTS

from plmctl.errors import ConfigError, UsageError
from plmctl.text import annotate
from plmctl.text.tokenizer import Tokenizer


def words(tokenizer: Tokenizer, texts: list[str], segment: str | None = None) -> list[list[str]]:
    """The pieces of each word that the track begins."""
    ids, lengths = tokenizer.encode_flat(texts)
    starts = annotate.tracks(tokenizer, segment)["word_start"](texts, ids, lengths)
    found: list[list[str]] = []
    for piece, start in zip(tokenizer.pieces(ids), starts, strict=True):
        found += [[]] if start else []
        found[-1].append(piece)
    return found


def test_words_of_characters() -> None:
    tokenizer = Tokenizer.train(["ab c1 中文,d"], kind="char", vocab_size=100)
    found = ["".join(word) for word in words(tokenizer, ["ab c1", "", "d中文a,b"])]
    assert found == ["ab", " ", "c1", "d", "中", "文", "a", ",", "b"]


def test_the_table_is_enough_for_other_kinds() -> None:
    tokenizer = Tokenizer.train(TEXTS, kind="wordpiece", vocab_size=1200)
    assert annotate.names(tokenizer, None) == ()
    assert annotate.tracks(tokenizer, None) == {}


@pytest.mark.parametrize("kind", ["wordpiece", "char", "unigram", "byte_bpe"])
def test_chinese_words(kind: str) -> None:
    pytest.importorskip("jieba")
    tokenizer = Tokenizer.train([*TEXTS, *[CHINESE] * 20], kind=kind, vocab_size=1500)
    whole = words(tokenizer, ["plain text", CHINESE], "jieba")
    joined = ["".join(word) for word in whole]
    if kind in ("wordpiece", "char"):
        assert {"今天天气", "公园", "散步", "北京大学", "图书馆", "，"} <= set(joined)
    ids, _ = tokenizer.encode_flat(["plain text", CHINESE])
    assert len(joined) <= tokenizer.vocab.word_start[ids].sum() + 2 or kind == "char"


def test_jieba_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    annotate.segmenter.cache_clear()
    with pytest.raises(UsageError, match=r"pip install 'plmctl\[chinese\]'"):
        annotate.segmenter()


def test_an_unknown_segmenter() -> None:
    tokenizer = Tokenizer.train(["a b"], kind="char", vocab_size=100)
    with pytest.raises(ConfigError, match=r"data\.segment"):
        annotate.names(tokenizer, "ltp")
