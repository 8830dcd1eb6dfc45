"""Pieces of Chinese words: a segmenter puts spaces between words before a tokenizer that splits at
spaces reads the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from plmctl.core.errors import ConfigError, nearest
from plmctl.text import segment
from plmctl.text.backend import Cut, Span, cut_nowhere
from plmctl.text.letters import close_gaps
from plmctl.text.rust import Rust
from plmctl.text.segment import Segmenter
from plmctl.text.sentences import CHINESE, CJK

FILE = "segmenter.txt"  # in a tokenizer's folder: the name of the segmenter
_STRETCH = re.compile(f"[{CJK}]+")


class SpacedBackend:
    """The part of a `Backend` that reads a text by `inner`, with more spaces in it. Offsets are
    those of the text itself.
    """

    def __init__(self, inner: Rust) -> None:
        self.inner, self.tokens, self.special = inner, inner.tokens, inner.special
        self.cut: Cut = cut_nowhere  # where a word ends depends on all that stands around it

    def space(self, text: str) -> tuple[str, list[int]]:
        """The text with its spaces, and the offset in `text` of each character and of the end."""
        raise NotImplementedError(type(self).__name__)

    def reserve(self, tokens: Collection[str]) -> None:
        """Let none of these tokens stand for text either."""
        self.inner.reserve(tokens)
        self.special = self.inner.special

    def encode(self, text: str) -> list[int]:
        """The ids of `text`."""
        return self.inner.encode(self.space(text)[0])

    def encode_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Ids, and for each the span of characters of `text` that it covers."""
        changed, offsets = self.space(text)
        ids, spans = self.inner.encode_offsets(changed)
        return ids, [
            (offsets[start], offsets[end - 1] + 1) if end > start else (offsets[start],) * 2
            for start, end in spans
        ]


class SegmentedBackend(SpacedBackend):
    """A `Backend`: `inner` on a text with a space at each end of a Chinese word, so that no token
    crosses one.

    `name`: jieba. Offsets are those of the text itself; `decode` leaves out spaces between Chinese
    characters.
    """

    def __init__(self, inner: Rust, name: str) -> None:
        super().__init__(inner)
        self.name, self._words = name, find(name)

    def space(self, text: str) -> tuple[str, list[int]]:
        return space_words(text, self._words)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, without spaces between Chinese characters."""
        return close_gaps(self.inner.decode(ids))

    def normalize(self, text: str) -> str:
        """As `inner`."""
        return self.inner.normalize(text)

    def files(self) -> dict[str, bytes]:
        """The files of `inner` and the name of the segmenter."""
        return {**self.inner.files(), FILE: self.name.encode()}


def find(name: str) -> Segmenter:
    """The segmenter of a tokenizer: always one of ours, because a folder must not decide what is
    imported.
    """
    own = segment.OWN
    if name not in own:
        allowed = f"{', '.join(own)}, or null: Chinese characters alone{nearest(name, own)}"
        raise ConfigError("tokenizer.segment", name, allowed, fix=f"tokenizer.segment={own[0]}")
    return segment.find(name, path="tokenizer.segment")


def count_words(text: str, words: Segmenter | None = None) -> int:
    """Words between white space; of Chinese those of a segmenter, or else its characters, and no
    signs alone.
    """
    if text.isascii() or not CHINESE.search(text):
        return len(text.split())
    if words is not None:
        return sum(any(map(str.isalnum, text[start:end])) for start, end in words(text))
    rest, stretches = _STRETCH.subn(" ", text)
    characters = len(text) - len(rest) + stretches
    return characters + sum(any(map(str.isalnum, word)) for word in rest.split())


def space_words(text: str, words: Segmenter) -> tuple[str, list[int]]:
    """Put a space between two words if one of them touches the other with a Chinese character.

    Returns:
        The new text, and for each of its characters the offset in the old one.
    """
    if not CHINESE.search(text):
        return text, [*range(len(text) + 1)]
    parts, offsets = [], []
    for start, end in words(text):
        if start and (CHINESE.match(text, start) or CHINESE.match(text, start - 1)):
            parts.append(" ")
            offsets.append(start)
        parts.append(text[start:end])
        offsets += range(start, end)
    return "".join(parts), [*offsets, len(text)]
