"""The interface between a `Tokenizer` and the library that splits text: `rust.py` and
`sentence_piece.py` implement it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

Span = tuple[int, int]
Cut = Callable[[str], list[str] | None]


class Backend(Protocol):
    """A trained vocabulary that turns text into ids. Special tokens that a text spells out are
    encoded as ordinary text.
    """

    tokens: list[str]  # by id
    special: list[str]  # tokens that never stand for text
    # text -> parts that may be encoded alone, and so cached, or None where that would change an id
    cut: Cut

    def reserve(self, tokens: Collection[str]) -> None:
        """Let none of these tokens stand for text either."""

    def encode(self, text: str) -> list[int]:
        """The ids of `text`."""

    def encode_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Ids, and for each the half-open span of characters of `text` that it covers."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`."""

    def normalize(self, text: str) -> str:
        """`text` as it is before it is split: in lower case, without accents, ..."""

    def files(self) -> dict[str, bytes]:
        """The files from which this tokenizer is read again: file name -> content."""
        ...


_HALVES = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """`text` without halves of surrogate pairs, which JSON can write and UTF-8 cannot: each
    becomes U+FFFD, offsets stay.
    """
    return text if text.isascii() else _HALVES.sub("\ufffd", text)


def cut_nowhere(text: str) -> None:
    """None: no cut is known to be safe, so the text is encoded in one piece."""
    return None


_SPACED = re.compile(r"\s\s")
_WORDS = re.compile(r" ?[^ ]+|[ ]")
# the common planes; rarer characters stay in their word, which is also right
_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_MARKS = r"!-/:-@\[-`{-~"  # ASCII punctuation
_BERT_PARTS = re.compile(f"[{_CJK}{_MARKS}]|[^ {_CJK}{_MARKS}]+")


def cut_at_spaces(text: str) -> list[str]:
    """Cut at each space; safe where a tokenizer drops spaces and never looks across them."""
    return text.split(" ")


def cut_as_bert(text: str) -> list[str]:
    """Cut at each space and around each punctuation mark and Chinese character, as BERT's
    pre-tokenizer does.
    """
    return _BERT_PARTS.findall(text)


def cut_before_spaces(text: str) -> list[str] | None:
    """Cut before each space; safe for GPT-2's pattern except where white space follows white
    space.
    """
    return None if _SPACED.search(text) else _WORDS.findall(text)
