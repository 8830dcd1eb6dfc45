"""Interpolated Kneser-Ney against its formula, word by word."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from plmctl.core.errors import DataError
from plmctl.probes.ngram import KneserNey, split_words

WORDS = ["the", "a", "cat", "dog", "sees", "likes", "old"]


def draw(count: int) -> list[str]:
    """Sentences in which few words follow each other often, and some never."""
    generator = np.random.default_rng(0)
    rows = []
    for _ in range(count):
        size = int(generator.integers(1, 7))
        picks = np.minimum(generator.geometric(0.35, size), len(WORDS)) - 1
        rows.append(" ".join(WORDS[pick] for pick in picks))
    return rows


class Reference:
    """The formula with dictionaries: no arrays, no sharing of numbers between lengths."""

    def __init__(self, texts: list[str], order: int) -> None:
        rows = [["<s>", *text.split(), "</s>"] for text in texts]
        self.order, self.count = order, [Counter() for _ in range(order + 1)]
        for row in rows:
            for end in range(1, len(row) + 1):
                for size in range(1, min(order, end) + 1):
                    self.count[size][tuple(row[end - size : end])] += 1
        self.words = sorted({w for row in rows for w in row} - {"<s>"} | {"?"})
        self.adjusted = [Counter(), *(self._adjust(size) for size in range(1, order + 1))]
        self.discounts = [None, *(self._discount(size) for size in range(1, order + 1))]

    def _adjust(self, size: int) -> Counter:
        if size == self.order:
            return Counter({g: c for g, c in self.count[size].items() if g != ("<s>",)})
        found = Counter()
        for gram, times in self.count[size].items():
            if gram == ("<s>",):
                continue
            longer = {g for g in self.count[size + 1] if g[1:] == gram}
            found[gram] = times if gram[0] == "<s>" else len(longer)
        return found

    def _discount(self, size: int) -> dict[int, float]:
        n = [sum(c == k for c in self.adjusted[size].values()) for k in range(5)]
        if not all(n[1:]):
            return {0: 0.0, 1: 0.5, 2: 1.0, 3: 1.5}
        y = n[1] / (n[1] + 2 * n[2])
        found = {k: k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3)}
        return {0: 0.0, **(found if min(found.values()) > 0 else {1: 0.5, 2: 1.0, 3: 1.5})}

    def probability(self, word: str, history: tuple[str, ...]) -> float:
        size = len(history) + 1
        lower = self.probability(word, history[1:]) if history else 1 / len(self.words)
        after = {g: c for g, c in self.adjusted[size].items() if g[:-1] == history and c}
        if not after:
            return lower
        total, cut = sum(after.values()), self.discounts[size]
        own = after.get((*history, word), 0)
        spared = sum(cut[min(c, 3)] for c in after.values())
        return (own - cut[min(own, 3)]) / total + spared / total * lower

    def score(self, text: str) -> float:
        row = ["<s>", *(w if w in self.words else "?" for w in text.split()), "</s>"]
        places = range(1, len(row))
        return sum(
            math.log(self.probability(row[t], tuple(row[max(0, t - self.order + 1) : t])))
            for t in places
        )


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [6, 400])  # too few counts for discounts, and enough
def test_as_the_formula(order, size) -> None:
    texts = draw(size)
    model, reference = KneserNey(texts, order=order, least=1), Reference(texts, order)
    new = [*texts[:5], "dog cat old old the", "the zebra sees a cat", "old", "a a a a a a a"]
    expected = [reference.score(text) for text in new]
    assert model.score(new) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("history", [(), ("<s>",), ("the", "a"), ("dog", "?"), ("?", "the")])
def test_the_words_that_may_follow_have_the_sum_1(history) -> None:
    reference = Reference(draw(400), 3)
    total = sum(reference.probability(word, history) for word in reference.words)
    assert total == pytest.approx(1, abs=1e-12)


def test_rare_words_are_one_word() -> None:
    model = KneserNey(["a b", "a c", "a d"], order=2, least=2)
    assert list(model.number) == ["a"]
    same = model.score(["a b", "a x"])
    assert same[0] == same[1]


def test_marks_are_words_and_a_text_has_some() -> None:
    assert split_words("She isn't here, is she?") == ["She", "isn't", "here", ",", "is", "she", "?"]
    with pytest.raises(DataError, match="no words to count"):
        KneserNey([" "])
