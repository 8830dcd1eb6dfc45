"""Documents with their sentences, as readers return them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b

from plmctl.text import sentences
from plmctl.text.marks import Marks


class Document:
    """One document: its paragraphs, where it stands in the input, an identity (a hash of its text),
    and marks in its text.

    Args:
        paragraphs: the text.
        place: file and line, for messages.
        whole: each paragraph is one sentence.
        pair: the two paragraphs are a text and its translation.
        running: joined, the paragraphs are the text, with all of its line breaks.
        identity: The identity of the document that this one continues; None for a first part.
        marks: the marks of the text, by name.
        joined: The number of lines of the file that were joined to the lines before them.
    """

    def __init__(
        self,
        paragraphs: Sequence[str],
        place: str,
        *,
        whole: bool = False,
        pair: bool = False,
        running: bool = False,
        identity: int | None = None,
        marks: Marks | None = None,
        joined: int = 0,
    ) -> None:
        self.paragraphs, self.place, self.whole, self.pair = tuple(paragraphs), place, whole, pair
        self.running, self.joined = running, joined
        self.continues = identity is not None
        self.identity = _identity(self.paragraphs) if identity is None else identity
        self.marks: Marks = marks or {}

    @cached_property
    def segments(self) -> list[str]:
        """Sentences with the white space before them; joined they are the text, with a line
        break between paragraphs.
        """
        if self.pair or self.running:
            return list(self.paragraphs)
        segments: list[str] = []
        for paragraph in self.paragraphs:
            parts = [paragraph] if self.whole else sentences.pieces(paragraph)
            if parts and (segments or self.continues):
                parts[0] = "\n" + parts[0]
            segments += parts
        return segments

    @property
    def sentences(self) -> list[str]:
        """Without white space around them, and without empty ones (but a pair has always two, and
        running text all its lines).
        """
        return (
            self.segments
            if self.pair or self.running
            else [sentence for segment in self.segments if (sentence := segment.strip())]
        )


def _identity(paragraphs: Sequence[str]) -> int:
    text = "\n".join(paragraphs).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
