"""Pieces of Chinese words: text is cut into words by a segmenter before a tokenizer that goes by
spaces sees it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from plmctl.core.errors import ConfigError, nearest
from plmctl.text import segment
from plmctl.text.backend import Cut, Span, cut_nowhere
from plmctl.text.rust import Rust
from plmctl.text.segment import Segmenter
from plmctl.text.sentences import CJK

FILE = "segmenter.txt"  # in a tokenizer's folder: whose words they are
_CHINESE = re.compile(f"[{CJK}]")
_BETWEEN = re.compile(f"(?<=[{CJK}]) (?=[{CJK}])")


class SegmentedBackend:
    """A `Backend`: `inner` on text with a space at each end of a Chinese word; no token goes over
    one.

    `name`: jieba. Offsets are those of the text itself; `decode` leaves out spaces between Chinese
    characters.
    """

    def __init__(self, inner: Rust, name: str) -> None:
        self.inner, self.name, self._words = inner, name, find(name)
        self.tokens, self.special = inner.tokens, inner.special
        self.cut: Cut = cut_nowhere  # where a word ends depends on all that stands around it

    def encode(self, text: str) -> list[int]:
        return self.inner.encode(space_words(text, self._words)[0])

    def encode_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        changed, place = space_words(text, self._words)
        ids, spans = self.inner.encode_offsets(changed)
        return ids, [
            (place[start], place[end - 1] + 1) if end > start else (place[start],) * 2
            for start, end in spans
        ]

    def decode(self, ids: Sequence[int]) -> str:
        return _BETWEEN.sub("", self.inner.decode(ids))

    def files(self) -> dict[str, bytes]:
        return {**self.inner.files(), FILE: self.name.encode()}


def find(name: str) -> Segmenter:
    """The segmenter of a tokenizer: our own one, since a folder must not say what is imported."""
    if name != "jieba":
        allowed = f"jieba, or null: Chinese characters alone{nearest(name, ['jieba'])}"
        raise ConfigError("tokenizer.segment", name, allowed, fix="tokenizer.segment=jieba")
    return segment.find(name)


def space_words(text: str, words: Segmenter) -> tuple[str, list[int]]:
    """The text with a space between two words one of which touches it with a Chinese character;
    where each character was.
    """
    if not _CHINESE.search(text):
        return text, [*range(len(text) + 1)]
    made, place = [], []
    for start, end in words(text):
        if start and (_CHINESE.match(text, start) or _CHINESE.match(text, start - 1)):
            made.append(" ")
            place.append(start)
        made.append(text[start:end])
        place += range(start, end)
    return "".join(made), [*place, len(text)]
