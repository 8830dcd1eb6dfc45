"""Tokens a word, for lengths in words, and passes over a text: counted where tokens or a tokenizer
exist, else guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.config.spec import thaw
from plmctl.config.texts import sources
from plmctl.core.errors import PlmctlError
from plmctl.data.counted_words import LONGEST, count_words
from plmctl.data.located import locate
from plmctl.data.shards import Shards, is_tokens
from plmctl.data.survey import TENTH, TextSource
from plmctl.inputs.tokenize import find_sources
from plmctl.runs.check import count_vocabulary
from plmctl.runs.vocabulary import SHORT
from plmctl.text.tabular import PACKED, has_rows
from plmctl.text.tokenizer import Tokenizer

LONG = 1 << 26  # bytes of a text whose words are counted: seconds
HELD_TOKENS = 5000  # tokens that are held out at least, about: survey.HELD characters
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


def count_text(spec: Any) -> tuple[int, str]:
    """(the words of the one text of a pretraining, how they are guessed); 0 words of several texts,
    of tokens, and where nobody knows them.
    """
    corpora = _list_corpora(spec)
    path = corpora[0].get("path")
    if len(corpora) > 1 or (path and is_tokens(path)):
        return 0, ""
    try:
        return _count_words(find_sources(thaw(spec.data), path)[0])
    except (PlmctlError, OSError):  # the run itself reports what is wrong with its text
        return 0, ""


def describe_passes(spec: Any, tokens: int, counted: tuple[int, str]) -> str:
    """`about 2.4, of 150,000 words`: how often so many tokens of a run read its text; "" where the
    run has several texts, or the size of its text is not known. `counted`: by `count_text`.
    """
    corpora = _list_corpora(spec)
    path, words = corpora[0].get("path"), spec.train.get("words")
    if len(corpora) == 1 and path and is_tokens(path):
        text = Shards.open(locate(path))
        size, unit = (count_words(text), "words") if words else (len(text.ids), "tokens")
        return f"about {(words or tokens) / max(1, size):.3g}, of {size:,} {unit}"
    size, guess = counted
    if not size:
        return ""
    passes = (words or tokens / find_word_ratio(spec).tokens) / size
    return f"about {passes:.3g}, of {size:,} words{guess}"


def count_held_out(spec: Any, words: int) -> int | None:
    """The held-out tokens of a pretraining on one text of so many words, about; None where nobody
    knows them, as of 0 words.
    """
    share = spec.data.valid_share
    if len(_list_corpora(spec)) != 1 or spec.data.valid_path:
        return None
    if not share:
        return 0
    if not words:
        return None
    try:
        tokens = words * find_word_ratio(spec).tokens
    except (PlmctlError, OSError):  # the run itself reports what is wrong with its tokenizer
        return None
    return round(max(share * tokens, min(HELD_TOKENS, TENTH * tokens))) or None


def _list_corpora(spec: Any) -> list[Any]:
    return [part for node in sources(spec).values() for part in node["corpora"].values()]


def _count_words(source: TextSource) -> tuple[int, str]:
    """(the words of a text, how they are guessed); 0 words where its beginning does not say it, and
    in a language without spaces.

    The beginning of files of lines stands for the whole, by its share of the bytes.
    """
    words, read = 0, 0
    for document in source.documents():
        words += sum(len(text.split()) for text in document.sentences)
        read += sum(len(text.encode()) + 1 for text in document.sentences)
        if read >= LONG:
            break
    else:
        return (words if read <= LONGEST * words else 0), ""
    files = [file for file in source.files() if isinstance(file, Path)]
    other = source.pairs or source.span or any(f.suffix in PACKED or has_rows(f) for f in files)
    if not files or other or read > LONGEST * words:
        return 0, ""
    whole = words * sum(file.stat().st_size for file in files) / read
    return int(float(f"{whole:.2g}")), ", a guess from its beginning"


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
