"""The lines, words and language of a text, as rules see it, each computed once."""

from __future__ import annotations

import re
from functools import cached_property

from plmctl.cleaning.languages import Guessed, guess_language
from plmctl.text.letters import count_unspaced, split_spaced

STOPS = ".?!。！？｡।॥؟۔։።။។"  # signs that end a sentence
QUOTES = "\"'”’»」』）)"  # signs that may stand behind one
ELLIPSES = ("...", "…")
_PARAGRAPH = re.compile(r"\n{2,}")
_BREAKS = re.compile(r"\n+")


class TextView:
    """A text and its measures.

    Args:
        text: The text.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def lines(self) -> list[str]:
        """The lines that are not blank, without outer white space."""
        return [line for raw in self.text.split("\n") if (line := raw.strip())]

    @cached_property
    def raw_lines(self) -> list[str]:
        """The pieces between line breaks."""
        return _BREAKS.split(self.text)

    @cached_property
    def paragraphs(self) -> list[str]:
        """The pieces between blank lines."""
        return _PARAGRAPH.split(self.text.strip())

    @cached_property
    def words(self) -> list[str]:
        """The words by white space, with their signs; of scripts without spaces each character."""
        return split_spaced(self.text)

    @cached_property
    def has_spaces(self) -> bool:
        """Whether most of the text is in a script with spaces between its words."""
        return 2 * count_unspaced(self.text) < len(self.words)

    @cached_property
    def language(self) -> Guessed:
        """The language, and how sure that is."""
        return guess_language(self.text)
