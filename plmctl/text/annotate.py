"""Tracks: one value for each token, made from the text and stored with the ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plmctl.core.errors import ConfigError, DataError
from plmctl.text import segment
from plmctl.text.roles import find_joined
from plmctl.text.sentences import CHINESE, CJK
from plmctl.text.suffixed import LAST
from plmctl.text.tokenizer import Tokenizer

# texts, ids [N], length of each text -> [N]
Track = Callable[[Sequence[str], np.ndarray, np.ndarray], np.ndarray]
_ALL_CHINESE = re.compile(f"[{CJK}]+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# names of arrays of a token directory, and of tracks that formats make
_TAKEN = (
    "ids",
    "sentences",
    "documents",
    "bytes",
    "characters",
    "words",
    "word_start",
    "sentence",
    "document",
    "segment",
    "position",
    "language",
    "order",
    "real",
)


@dataclass(frozen=True)
class Wanted:
    """The tracks that are stored with the ids: words of a segmenter, and marks of the input as
    spans or as tags.

    Args:
        segment: name of the segmenter of Chinese words, or None.
        spans: fields of the input whose marks become spans.
        tags: fields of the input whose marks become one id for each token.
    """

    segment: str | None = None
    spans: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def check_names(spans: Sequence[str], tags: Sequence[str]) -> None:
    """Raise ConfigError if one of these cannot be the name of a track."""
    for setting, names in (("spans", spans), ("tags", tags)):
        for name in names:
            if not _NAME.fullmatch(name) or name in _TAKEN or [*spans, *tags].count(name) > 1:
                allowed = (
                    "names of letters and digits,"
                    f" each once in data.spans and data.tags, none of {', '.join(_TAKEN)}"
                )
                raise ConfigError(f"data.{setting}", list(names), allowed)


def choose_tracks(tokenizer: Tokenizer, wanted: Wanted) -> dict[str, np.dtype[Any]]:
    """The dtype of each track of a token directory: word starts, if the vocabulary's own table is
    not enough, and tags.
    """
    words = wanted.segment is not None or tokenizer.kind in _BY_CONTEXT
    return {
        **({"word_start": np.dtype(bool)} if words else {}),
        **dict.fromkeys(wanted.tags, np.dtype(np.int32)),
    }


def choose_word_starts(tokenizer: Tokenizer, segmenter: str | None) -> Track | None:
    """The function that computes the track of word starts, or None if the table of the vocabulary
    is enough.
    """
    if segmenter is None and tokenizer.kind not in _BY_CONTEXT:
        return None
    base = _BY_CONTEXT.get(tokenizer.kind, _table_words)(tokenizer)
    return base if segmenter is None else _start_segmented_words(tokenizer, base, segmenter)


def _table_words(tokenizer: Tokenizer) -> Track:
    table = tokenizer.vocab.word_start

    def starts(texts: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        starting = table[ids]
        starting[_firsts(lengths)] = True
        return starting

    return starts


def _character_words(tokenizer: Tokenizer) -> Track:
    """A letter or digit begins a word unless one stands before it in the same text; anything
    else is a word by itself.
    """
    joins = find_joined(tokenizer.pieces(range(tokenizer.vocab.size)))

    def starts(texts: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        joined = joins[ids]
        starting = np.ones(len(ids), bool)
        starting[1:] = ~(joined[1:] & joined[:-1])
        starting[_firsts(lengths)] = True
        return starting

    return starts


def _ended_words(tokenizer: Tokenizer) -> Track:
    """A piece begins a word if the one before it ends a word, or is special or unknown."""
    pieces, vocab = tokenizer.pieces(range(tokenizer.vocab.size)), tokenizer.vocab
    ends = np.array([piece.endswith(LAST) for piece in pieces]) | vocab.special
    ends[[] if vocab.unk is None else vocab.unk] = True

    def starts(texts: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        starting = np.ones(len(ids), bool)
        starting[1:] = ends[ids[:-1]]
        starting[_firsts(lengths)] = True
        return starting

    return starts


# kinds of tokenizers whose words depend on the tokens before and after
_BY_CONTEXT = {"char": _character_words, "suffix_bpe": _ended_words}


def _cut_parts(tokenizer: Tokenizer) -> Track:
    """The parts into which a byte-level tokenizer cuts a text before its pieces."""
    return lambda texts, ids, lengths: tokenizer.find_parts(ids)


# the same, and kinds that cut a text into words and marks themselves
_AS_CUT = {**_BY_CONTEXT, "byte_bpe": _cut_parts}


def find_word_starts(tokenizer: Tokenizer) -> Callable[[np.ndarray], np.ndarray]:
    """A function of the ids [N] of one text, [N] bool: the tokens that begin a word, where a mark
    is a word, too. Byte-level pieces follow the rule by which the tokenizer cuts a text before its
    pieces.

    Differs: Whole word masking knows only words between spaces for these, as fairseq.
    """
    starts = _AS_CUT.get(tokenizer.kind, _table_words)(tokenizer)
    return lambda ids: starts([], ids, np.array([len(ids)]))


def _firsts(lengths: np.ndarray) -> np.ndarray:
    """Where each text that has tokens begins."""
    return (np.cumsum(lengths) - lengths)[lengths > 0]


def _start_segmented_words(tokenizer: Tokenizer, base: Track, name: str) -> Track:
    """Chinese words by a segmenter: a token that begins inside a segmented word does not start one.

    Only words of two and more Chinese characters count (Cui et al., 2021, arXiv:1906.08101, sec.
    3.1: whole word masking).
    """
    segmenter = segment.find(name)

    def starts(texts: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        starting, offset = base(texts, ids, lengths).copy(), 0
        for text, length in zip(texts, lengths.tolist(), strict=True):
            if CHINESE.search(text):
                inside = np.zeros(len(text) + 1, bool)
                for start, end in segmenter(text):
                    if not 0 <= start < end <= len(text):
                        problem = f"{start}..{end} is no word of a text of {len(text)} characters"
                        raise DataError(problem, file=name)
                    if end - start > 1 and _ALL_CHINESE.fullmatch(text, start, end):
                        inside[start + 1 : end] = True
                spans = np.array(tokenizer.encode_offsets(text)[1]).reshape(-1, 2)
                starting[offset : offset + length] &= ~inside[spans[:, 0]]
            offset += length
        return starting

    return starts
