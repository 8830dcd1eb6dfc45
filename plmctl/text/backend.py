"""What a `Tokenizer` asks of the library that does the cutting: two implementations, `rust.py`
and `sentence_piece.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

Span = tuple[int, int]
Cut = Callable[[str], list[str] | None]


class Backend(Protocol):
    """A trained vocabulary that turns text into ids. Specials that stand literally in the text
    stay text.
    """

    tokens: list[str]  # by id
    special: list[str]  # tokens that never stand for text
    # text -> parts that may be encoded alone, and so remembered, or None where that would change an
    # id
    cut: Cut

    def encode(self, text: str) -> list[int]: ...

    def encode_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Ids and, for each, the half-open span of characters of `text` it stands for."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def files(self) -> dict[str, bytes]:
        """What must be written to have this tokenizer again: file name -> content."""
        ...


_HALVES = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """`text` without halves of surrogate pairs, which JSON can write and UTF-8 cannot: each
    becomes U+FFFD, offsets stay.
    """
    return text if text.isascii() else _HALVES.sub("\ufffd", text)


def cut_nowhere(text: str) -> None:
    """No cut is known to be safe: the text is encoded whole."""
    return None


_SPACED = re.compile(r"\s\s")
_WORDS = re.compile(r" ?[^ ]+|[ ]")
# the common planes; rarer characters stay in their word, which is also right
_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_MARKS = r"!-/:-@\[-`{-~"  # ASCII punctuation
_BERT_PARTS = re.compile(f"[{_CJK}{_MARKS}]|[^ {_CJK}{_MARKS}]+")


def cut_at_spaces(text: str) -> list[str]:
    """At each space; safe where a tokenizer drops spaces and never looks across them."""
    return text.split(" ")


def cut_as_bert(text: str) -> list[str]:
    """At each space and around each punctuation mark and Chinese character, as BERT's
    pre-tokenizer does.
    """
    return _BERT_PARTS.findall(text)


def cut_before_spaces(text: str) -> list[str] | None:
    """Before each space; safe for GPT-2's pattern except where white space follows white space."""
    return None if _SPACED.search(text) else _WORDS.findall(text)
