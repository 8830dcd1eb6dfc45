"""Demonstrations: training examples that are shown behind a text, one of each class."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from plmctl.core.errors import DataError
from plmctl.tasks.readers.tables import TEXTS
from plmctl.tasks.record import Example, Examples
from plmctl.text.letters import compose, find_words, separate

Vector = dict[str, float]


class Demonstrations:
    """Draws sets of an example of each class, none of them the text itself (Gao et al., 2021,
    arXiv:2012.15723, sec. 6.1).

    With `similar` below 1, those of a class are the share of its examples that is nearest to the
    text (sec. 6.2: 0.5). The draws follow from `seed` and the text. Differs: nearest by the cosine
    of weighted words, `count log(M / m)` for a word that m of M examples have, instead of SBERT's
    vectors; a text keeps its sets in all epochs.

    Args:
        pool: the training examples.
        names: The names of the classes, in the order in which they are shown.
    """

    def __init__(self, pool: Examples, names: Sequence[str], *, similar: float, seed: int) -> None:
        self.similar, self.seed = similar, seed
        self.of_names = {name: [each for each in pool if each.label == name] for name in names}
        words = [set(_split(example)) for example in pool]
        found = Counter(word for own in words for word in own)
        self.weights = {word: math.log(len(pool) / count) for word, count in found.items()}
        self.vectors = {id(each): self._weigh(each) for each in pool} if similar < 1 else {}

    def draw(self, example: Example, count: int) -> list[list[Example]]:
        """`count` sets for a text; DataError where a class has no other example."""
        own = [self._find(example, name) for name in self.of_names]
        text = "\t".join(_read(example)).encode()
        number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        generator = np.random.default_rng([self.seed, number])
        return [[each[int(generator.integers(len(each)))] for each in own] for _ in range(count)]

    def _find(self, example: Example, name: str) -> list[Example]:
        """The examples of a class that may be shown."""
        others = [each for each in self.of_names[name] if _read(each) != _read(example)]
        if not others:
            what = f"no other training example of the label '{name}' could be shown"
            raise DataError(what, file=example.place, fix="task.demonstrations=0")
        if self.similar == 1:
            return others
        vector = self._weigh(example)
        near = sorted(others, key=lambda each: -_compare(vector, self.vectors[id(each)]))
        return near[: max(1, round(self.similar * len(near)))]

    def _weigh(self, example: Example) -> Vector:
        counts = Counter(_split(example))
        return {word: n * self.weights.get(word, 0.0) for word, n in counts.items()}


def _read(example: Example) -> tuple[str, ...]:
    return tuple(str(example.fields.get(role, "")) for role in TEXTS)


def _split(example: Example) -> list[str]:
    text = compose(" ".join(_read(example)).lower())
    return [word[0] for word in find_words(separate(text))]


def _compare(a: Vector, b: Vector) -> float:
    """The cosine of two vectors of words."""
    product = math.fsum(value * b.get(word, 0.0) for word, value in a.items())
    lengths = math.sqrt(math.fsum(x * x for x in a.values()) * math.fsum(x * x for x in b.values()))
    return product / lengths if lengths else 0.0
