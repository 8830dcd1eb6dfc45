"""A text whose words can be replaced while all that stands between them stays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from plmctl.text.letters import JOINERS, JOINTS, UNSPACED, mark_class, split_letters, word_pattern
from plmctl.text.segment import Segmenter


@cache
def stretches() -> re.Pattern[str]:
    """Words, of which don't and well-made are one each, or stretches of characters of scripts
    without spaces.
    """
    word = word_pattern(JOINTS, f"_{UNSPACED}").pattern
    return re.compile(rf"((?:[{UNSPACED}][{mark_class()}{JOINERS}]*)+)|{word}")


@dataclass(frozen=True)
class WordText:
    """`pieces`, of which those at `places` are words; joined they are the text."""

    pieces: tuple[str, ...]
    places: tuple[int, ...]

    @classmethod
    def of(cls, text: str, segment: Segmenter | None = None) -> WordText:
        """The words of a text, and what is between them; a character of a script without
        spaces is a word, or those are that `segment` finds.
        """
        pieces: list[str] = []
        places: list[int] = []
        last = 0
        for start, end in _find_words(text, segment):
            pieces.append(text[last:start])
            places.append(len(pieces))
            pieces.append(text[start:end])
            last = end
        return cls((*pieces, text[last:]), tuple(places))

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def __len__(self) -> int:
        return len(self.places)

    def word(self, number: int) -> str:
        """The word of this number, from 0."""
        return self.pieces[self.places[number]]

    def start(self, number: int) -> int:
        """Where the word of this number begins in the text."""
        return sum(map(len, self.pieces[: self.places[number]]))

    def replace(self, number: int, word: str) -> WordText:
        """This text with another word there."""
        place = self.places[number]
        return WordText((*self.pieces[:place], word, *self.pieces[place + 1 :]), self.places)

    def delete(self, number: int) -> str:
        """The text without this word, and without the space before it, or behind the first one."""
        place = self.places[number]
        before, after = self.pieces[place - 1], self.pieces[place + 1]
        if before.endswith(" "):
            before = before[:-1]
        elif after.startswith(" "):
            after = after[1:]
        rest = self.pieces[place + 2 :]
        return "".join([*self.pieces[: place - 1], before, after, *rest])

    def differing(self, other: WordText) -> list[int]:
        """The numbers of the words that are others there."""
        return [n for n in range(len(self)) if self.word(n) != other.word(n)]


def _find_words(text: str, segment: Segmenter | None) -> Iterator[tuple[int, int]]:
    """(start, end) of each word."""
    for found in stretches().finditer(text):
        start, end = found.span()
        if found[1] is None:
            yield start, end
        elif segment is None:
            for letter in split_letters(found[1]):
                yield start, (start := start + len(letter))
        else:
            yield from ((start + a, start + b) for a, b in segment(found[1]))
