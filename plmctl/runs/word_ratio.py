"""Tokens a word, for lengths in words: counted where tokens or a tokenizer exist, else guessed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from plmctl.config.spec import thaw
from plmctl.config.texts import sources
from plmctl.core.errors import PlmctlError
from plmctl.data.counted_words import count_words
from plmctl.data.located import locate
from plmctl.data.shards import Shards, is_tokens
from plmctl.inputs.tokenize import find_sources
from plmctl.runs.check import count_vocabulary
from plmctl.runs.vocabulary import SHORT
from plmctl.text.tokenizer import Tokenizer

# sizes of a vocabulary, and tokens a word with it: English encyclopedia, wordpiece and byte_bpe
SIZES = (100, 500, 1000, 2048, 4096, 8192, 16384, 32768)
TOKENS = (5.8, 4.0, 2.9, 2.1, 1.8, 1.55, 1.4, 1.35)


@dataclass(frozen=True)
class WordRatio:
    """The tokens of a word in the mean.

    Args:
        tokens: Their number.
        guessed_from: The size of the vocabulary from which they are guessed; None: counted.
    """

    tokens: float
    guessed_from: int | None = None

    def describe(self) -> str:
        """`2.05 tokens a word`, and whether that is a guess."""
        size = self.guessed_from
        guess = "" if size is None else f", a guess from {size:,} tokens of vocabulary"
        return f"{self.tokens:.3g} tokens a word{guess}"


def find_word_ratio(spec: Any) -> WordRatio:
    """The tokens a word of a pretraining, counted in its tokens or in the beginning of its text.
    Without tokens and tokenizer they are guessed from the size of the vocabulary.
    """
    corpora = [part for node in sources(spec).values() for part in node["corpora"].values()]
    paths = [part.get("path") for part in corpora]
    if paths and all(path and is_tokens(path) for path in paths):
        return count_ratio([Shards.open(locate(path)) for path in paths])
    if folder := spec.tokenizer.get("path"):
        try:
            return _encode_beginning(Tokenizer.load(folder), thaw(spec.data))
        except (PlmctlError, OSError):  # the run itself reports what is wrong with its text
            pass
    return guess_ratio(count_vocabulary(spec))


def guess_ratio(size: int) -> WordRatio:
    """A guess from the size of a vocabulary: linear in its logarithm between measured sizes."""
    return WordRatio(float(np.interp(np.log(max(1, size)), np.log(SIZES), TOKENS)), size)


def count_ratio(texts: list[Shards]) -> WordRatio:
    """The tokens of texts, by their words."""
    words = sum(map(count_words, texts))
    return WordRatio(sum(len(text.ids) for text in texts) / max(1, words))


def _encode_beginning(tokenizer: Tokenizer, data: dict[str, Any]) -> WordRatio:
    """The tokens of the first characters of a text, by its words between white space."""
    source, _ = find_sources(data, data["path"])
    words, tokens, read = 0, 0, 0
    for document in source.documents():
        texts = list(document.sentences)
        words += sum(len(text.split()) for text in texts)
        tokens += sum(map(len, tokenizer.encode_batch(texts)))
        read += sum(map(len, texts))
        if read >= SHORT:
            break
    return WordRatio(tokens / max(1, words))
