"""Tracks: one value for each token, made from the text beside the ids and stored with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from plmctl.errors import ConfigError, UsageError
from plmctl.text import roles
from plmctl.text.sentences import CJK
from plmctl.text.tokenizer import Tokenizer

Track = Callable[[Sequence[str], np.ndarray, np.ndarray], np.ndarray]  # texts, ids [N], length of each text -> [N]
SEGMENTERS = ("jieba",)
_CHINESE = re.compile(f"[{CJK}]")


def names(tokenizer: Tokenizer, segment: str | None) -> tuple[str, ...]:
    """The tracks that a token directory needs: word starts, where the vocabulary's own table is not enough."""
    if segment is not None and segment not in SEGMENTERS:
        raise ConfigError("data.segment", segment, "jieba or null")
    return ("word_start",) if segment or tokenizer.kind == "char" else ()


def tracks(tokenizer: Tokenizer, segment: str | None) -> dict[str, Track]:
    """How the tracks of `names` are made."""
    if not names(tokenizer, segment):
        return {}
    base = _character_words(tokenizer) if tokenizer.kind == "char" else _table_words(tokenizer)
    return {"word_start": base if segment is None else _segmented(tokenizer, base)}


def _table_words(tokenizer: Tokenizer) -> Track:
    table = tokenizer.vocab.word_start

    def starts(texts: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        found = table[ids]
        found[_firsts(lengths)] = True
        return found

    return starts


def _character_words(tokenizer: Tokenizer) -> Track:
    """A letter or digit begins a word unless one stands before it in the same text; anything else is a word by itself."""
    joins = roles.joins_words(tokenizer.pieces(range(tokenizer.vocab.size)))

    def starts(texts: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        joined = joins[ids]
        found = np.ones(len(ids), bool)
        found[1:] = ~(joined[1:] & joined[:-1])
        found[_firsts(lengths)] = True
        return found

    return starts


def _firsts(lengths: np.ndarray) -> np.ndarray:
    """Where each text that has tokens begins."""
    return (np.cumsum(lengths) - lengths)[lengths > 0]


def _segmented(tokenizer: Tokenizer, base: Track) -> Track:
    """Chinese words by jieba: a token that begins inside a segmented word does not start one.

    Only words of two and more Chinese characters count (Cui et al., 2021, arXiv:1906.08101, sec. 3.1: whole word masking).
    """
    words = segmenter()

    def starts(texts: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        found, at = base(texts, ids, lengths).copy(), 0
        for text, length in zip(texts, lengths.tolist(), strict=True):
            if _CHINESE.search(text):
                inside = np.zeros(len(text) + 1, bool)
                for word, start, end in words(text):
                    if end - start > 1 and all(map(_CHINESE.match, word)):
                        inside[start + 1 : end] = True
                spans = np.array(tokenizer.encode_offsets(text)[1]).reshape(-1, 2)
                found[at : at + length] &= ~inside[spans[:, 0]]
            at += length
        return found

    return starts


@cache
def segmenter() -> Callable[[str], Any]:
    """jieba's `tokenize` without its hidden Markov model, whose guesses change between versions."""
    try:
        import jieba
    except ImportError as error:
        raise UsageError("data.segment=jieba needs jieba\n  fix: pip install 'plmctl[chinese]'") from error
    jieba.setLogLevel(60)
    jieba.initialize()
    return lambda text: jieba.tokenize(text, HMM=False)
