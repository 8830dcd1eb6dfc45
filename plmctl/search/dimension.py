"""One setting of a space: its values, how one is drawn, and how one changes."""

from __future__ import annotations

import itertools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from plmctl.search.layouts import MOST, Grammar, parse_grammar

STEP = 0.15  # deviation of a small change, as a share of an interval


class Dimension(ABC):
    """One setting of a space."""

    @abstractmethod
    def draw(self, random: np.random.Generator) -> Any:
        """Draw a value at random."""

    @abstractmethod
    def change(self, value: Any, random: np.random.Generator) -> Any:
        """Another value, drawn at random; the same one where there is no other."""

    @abstractmethod
    def holds(self, value: Any) -> bool:
        """Whether a value is one of this dimension."""

    def values(self) -> Sequence[Any] | None:
        """All values in order; None of an interval, and of more than can be listed."""
        return None

    @abstractmethod
    def locate(self, value: Any) -> float:
        """The position of a value, for models of the space: 0 to 1 in an interval, else the index
        in the list of values.
        """


@dataclass(frozen=True)
class Options(Dimension):
    """One of several values, which need no order."""

    options: tuple[Any, ...]

    def draw(self, random: np.random.Generator) -> Any:
        """Draw each with equal chance."""
        return self.options[int(random.integers(len(self.options)))]

    def change(self, value: Any, random: np.random.Generator) -> Any:
        """Draw each other one with equal chance."""
        others = [option for option in self.options if option != value]
        return Options(tuple(others)).draw(random) if others else value

    def holds(self, value: Any) -> bool:
        """Whether it is an option."""
        return value in self.options

    def values(self) -> Sequence[Any]:
        """All options."""
        return self.options

    def locate(self, value: Any) -> float:
        """The index in the list."""
        return float(self.options.index(value))


@dataclass(frozen=True)
class Interval(Dimension):
    """The numbers from `low` to `high`.

    Args:
        low: The smallest number.
        high: The largest number.
        log: Whether the logarithm is drawn evenly: each power of ten is as likely.
        whole: Whether only whole numbers count.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, random: np.random.Generator) -> Any:
        """Draw evenly, by the logarithm with `log`; every whole number has its own share."""
        return self._at(random.random())

    def change(self, value: Any, random: np.random.Generator) -> Any:
        """A near number as often as any number.

        x' = x + STEP * normal, drawn again until 0 <= x' <= 1, with x in [0, 1]
        """
        if self.low == self.high:
            return value
        start = self.locate(value)
        while True:
            new = random.random()
            if random.random() < 0.5:
                new = start + STEP * random.standard_normal()
            if 0 <= new < 1 and (changed := self._at(new)) != value:
                return changed

    def holds(self, value: Any) -> bool:
        """Whether it is a number between both ends, a whole one with `whole`."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and self.low <= value <= self.high and not (self.whole and value % 1)

    def values(self) -> Sequence[Any] | None:
        """All whole numbers; None of others."""
        few = self.whole and self.high - self.low < MOST
        return range(int(self.low), int(self.high) + 1) if few else None

    def locate(self, value: Any) -> float:
        """0 at the lower end, 1 at the upper one."""
        low, high = self._ends
        return (self._scale(value) - low) / (high - low) if high > low else 0.0

    @property
    def _ends(self) -> tuple[float, float]:
        """The scaled ends; a whole number has half of a step on each side."""
        half = 0.5 if self.whole else 0.0
        return self._scale(self.low - half), self._scale(self.high + half)

    def _scale(self, value: float) -> float:
        return math.log(value) if self.log else float(value)

    def _at(self, x: float) -> Any:
        low, high = self._ends
        scaled = low + x * (high - low)
        value = math.exp(scaled) if self.log else scaled
        value = float(min(max(value, self.low), self.high))
        return int(min(max(math.floor(value + 0.5), self.low), self.high)) if self.whole else value


@dataclass(frozen=True)
class Layouts(Dimension):
    """The layouts of a grammar (`plmctl.search.layouts`)."""

    text: str

    @cached_property
    def grammar(self) -> Grammar:
        """The grammar of `text`."""
        return parse_grammar(self.text)

    def draw(self, random: np.random.Generator) -> str:
        """Draw a layout."""
        return self.grammar.draw(random)

    def change(self, value: str, random: np.random.Generator) -> str:
        """The nearest of eight layouts that are drawn: the most letters stand where `value` has
        them.
        """
        drawn = [self.draw(random) for _ in range(8)]
        others = [each for each in drawn if each != value]
        near = [sum(a == b for a, b in zip(each, value, strict=False)) for each in others]
        return others[near.index(max(near))] if others else value

    def holds(self, value: Any) -> bool:
        """Whether the grammar describes it."""
        whole = re.fullmatch(self.grammar.pattern, value) if isinstance(value, str) else None
        return whole is not None

    def values(self) -> Sequence[str] | None:
        """All layouts, each once; None of too many."""
        found = list(itertools.islice(self.grammar.list_all(), MOST + 1))
        return tuple(dict.fromkeys(found)) if len(found) <= MOST else None

    def locate(self, value: str) -> float:
        """The index among all layouts; the number of letters where they are too many."""
        listed = self.values()
        return float(listed.index(value) if listed else len(value))
