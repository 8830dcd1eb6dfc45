"""Layouts by a grammar: `(af|fa){2,4}g?` is every layout that it describes.

`|` separates alternatives, brackets group, `?` may be left out, `{m}` and `{m,n}` repeat. All other
characters stand for themselves, also the `*` and `@` of layouts. An alternative is drawn with equal
chance, and so is a number of repetitions; a part with `?` is there in half of the layouts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

MOST = 1 << 16  # layouts that are listed one by one


@dataclass(frozen=True)
class Letters:
    """Letters that stand for themselves."""

    text: str

    def draw(self, random: np.random.Generator) -> str:
        """The letters."""
        return self.text

    def list_all(self) -> Iterator[str]:
        """The letters."""
        yield self.text

    @property
    def pattern(self) -> str:
        """The regular expression of these letters."""
        return re.escape(self.text)


@dataclass(frozen=True)
class InOrder:
    """Parts one after the other."""

    parts: tuple[Grammar, ...]

    def draw(self, random: np.random.Generator) -> str:
        """Draw every part."""
        return "".join(part.draw(random) for part in self.parts)

    def list_all(self) -> Iterator[str]:
        """Every combination, the last part changing fastest."""
        if not self.parts:
            yield ""
            return
        for first in self.parts[0].list_all():
            for rest in InOrder(self.parts[1:]).list_all():
                yield first + rest

    @property
    def pattern(self) -> str:
        """The regular expression of this row."""
        return "".join(part.pattern for part in self.parts)


@dataclass(frozen=True)
class Either:
    """Alternatives."""

    parts: tuple[Grammar, ...]

    def draw(self, random: np.random.Generator) -> str:
        """Draw one of the alternatives."""
        return self.parts[int(random.integers(len(self.parts)))].draw(random)

    def list_all(self) -> Iterator[str]:
        """All alternatives, in order."""
        for part in self.parts:
            yield from part.list_all()

    @property
    def pattern(self) -> str:
        """The regular expression of these alternatives."""
        return f"(?:{'|'.join(part.pattern for part in self.parts)})"


@dataclass(frozen=True)
class Repeat:
    """A part `least` to `most` times, each drawn anew."""

    part: Grammar
    least: int
    most: int

    def draw(self, random: np.random.Generator) -> str:
        """Draw how often, and each of them."""
        times = int(random.integers(self.least, self.most + 1))
        return "".join(self.part.draw(random) for _ in range(times))

    def list_all(self) -> Iterator[str]:
        """All of them, the shortest first."""
        for times in range(self.least, self.most + 1):
            yield from InOrder((self.part,) * times).list_all()

    @property
    def pattern(self) -> str:
        """The regular expression of this repetition."""
        return f"(?:{self.part.pattern}){{{self.least},{self.most}}}"


Grammar = Letters | InOrder | Either | Repeat


def parse_grammar(text: str) -> Grammar:
    """The grammar that `text` writes.

    Raises:
        ValueError: A bracket is not closed, or a repetition has nothing before it.
    """
    grammar, rest = _read_either(text)
    if rest:
        raise ValueError(f"'{rest[0]}' in '{text}' closes nothing")
    return grammar


def _read_either(text: str) -> tuple[Grammar, str]:
    """The alternatives at the beginning of a text, and what stands behind them."""
    found: list[Grammar] = []
    while True:
        row, text = _read_row(text)
        found.append(row)
        if not text.startswith("|"):
            return (found[0] if len(found) == 1 else Either(tuple(found))), text
        text = text[1:]


def _read_row(text: str) -> tuple[Grammar, str]:
    parts: list[Grammar] = []
    while text and text[0] not in "|)":
        if text[0] == "(":
            inner, behind = _read_either(text[1:])
            if not behind.startswith(")"):
                raise ValueError(f"'{text}' has a bracket that is not closed")
            parts.append(inner)
            text = behind[1:]
        elif match := re.match(r"\?|\{(\d+)(?:,(\d+))?\}", text):
            if not parts:
                raise ValueError(f"'{match[0]}' has nothing before it to repeat")
            least = int(match[1] or 0)
            most = int(match[2] or match[1] or 1)
            if most < least:
                raise ValueError(f"'{match[0]}' ends before it begins")
            parts[-1] = Repeat(parts[-1], least, most)
            text = text[match.end() :]
        else:
            parts.append(Letters(text[0]))
            text = text[1:]
    return (parts[0] if len(parts) == 1 else InOrder(tuple(parts))), text
