"""Strings that an algorithm writes, as a data set: copies, reversals, sums, duplications.

They show what a model can compute and how far it reaches, with lengths in training and in testing
that are told apart (Zaremba and Sutskever, 2014, arXiv:1410.4615; Dehghani et al., 2019,
arXiv:1807.03819, sec. 3.3; Kitaev et al., 2020, arXiv:2001.04451, sec. 2.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from string import ascii_letters
from typing import Any, ClassVar

import numpy as np

from plmctl.core.errors import DataError, find_meant, nearest

COUNT = 20_000  # rows, if the name of a data set does not say how many
# 127 letters, Latin, Cyrillic and Greek: as many symbols as Kitaev et al. have
SYMBOLS = (ascii_letters + "".join(map(chr, [*range(0x410, 0x450), *range(0x3B1, 0x3CA)])))[:127]

# (generator, length) -> (source, target)
Rule = Callable[[np.random.Generator, int], tuple[str, str]]


def _draw_word(draws: np.random.Generator, length: int) -> str:
    return "".join(SYMBOLS[index] for index in draws.integers(len(SYMBOLS), size=length))


def _draw_number(draws: np.random.Generator, length: int) -> int:
    """A number of `length` digits, the first of which is not 0."""
    digits = [int(draws.integers(1, 10)), *map(int, draws.integers(10, size=length - 1))]
    return int("".join(map(str, digits)))


def copy(draws: np.random.Generator, length: int) -> tuple[str, str]:
    """`w=` and `w`."""
    word = _draw_word(draws, length)
    return f"{word}=", word


def reverse(draws: np.random.Generator, length: int) -> tuple[str, str]:
    """`w=` and w backwards."""
    word = _draw_word(draws, length)
    return f"{word}=", word[::-1]


def add(draws: np.random.Generator, length: int) -> tuple[str, str]:
    """`a+b=` and the sum of two numbers of so many digits."""
    one, other = _draw_number(draws, length), _draw_number(draws, length)
    return f"{one}+{other}=", str(one + other)


def duplicate(draws: np.random.Generator, length: int) -> tuple[str, str]:
    """`0w` and `0w`."""
    word = _draw_word(draws, length)
    return f"0{word}", f"0{word}"


RULES: dict[str, Rule] = {
    "copy": copy,
    "reverse": reverse,
    "addition": add,
    "duplication": duplicate,
}


@dataclass(frozen=True)
class Strings:
    """The data set `strings:<kind>:<length>[:rows]`, with a length such as 63 or 1-20.

    Each row has a `source`, its `target`, and both as `text`. The name fixes all rows: another
    length or number of rows draws others.
    """

    PREFIX: ClassVar[str] = "strings:"
    path: str

    def __str__(self) -> str:
        return self.path

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (number, fields) of each row."""
        rule, shortest, longest, count = self.settings
        seed = int.from_bytes(blake2b(self.path.encode(), digest_size=8).digest(), "big")
        draws = np.random.default_rng(seed)
        for number in range(1, count + 1):
            source, target = rule(draws, int(draws.integers(shortest, longest + 1)))
            yield number, {"source": source, "target": target, "text": source + target}

    def state(self) -> dict[str, Any]:
        """The version of the data: the name is enough."""
        return {"bytes": 0, "changed": [self.path]}

    @property
    def settings(self) -> tuple[Rule, int, int, int]:
        """(rule, shortest and longest word, number of rows).

        Raises:
            DataError: if the name is none of a data set.
        """
        kind, *numbers = self.path.removeprefix(self.PREFIX).split(":")
        if kind not in RULES:
            kinds = f"{', '.join(RULES)}{nearest(kind, RULES)}"
            known = find_meant(kind, RULES) or "copy"
            fix = f"data.path={self.PREFIX}{':'.join([known, *(numbers or ['20'])])}"
            raise DataError(f"strings are one of {kinds}", file=self, fix=fix)
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?(?::(\d{1,9}))?", ":".join(numbers))
        shortest, longest, count = (
            (int(match[1]), int(match[2] or match[1]), int(match[3] or COUNT))
            if match
            else (0, 0, 0)
        )
        if not 1 <= shortest <= longest or not count:
            raise DataError(
                f"such strings are named {self.PREFIX}<kind>:<length>[:rows], with a length from 1"
                " on, such as 63 or 1-20",
                file=self,
                fix=f"data.path={self.PREFIX}{kind}:20",
            )
        return RULES[kind], shortest, longest, count
