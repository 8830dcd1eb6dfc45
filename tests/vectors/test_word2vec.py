"""word2vec and GloVe: losses and updates as float64 loops over pairs of words, n-grams as sums over
rows, and words that share contexts, which must become neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.knowledge.subwords import Ngrams
from plmctl.vectors.bands import Bands
from plmctl.vectors.base import VectorMethod
from plmctl.vectors.glove import AdaGradTable, GloVe
from plmctl.vectors.tables import StepBound, WordTables
from plmctl.vectors.windows import WordRows, cut_rows
from plmctl.vectors.word2vec import CBOW, SkipGram, Word2vec
from tests.vectors.tiny_text import draw_sentences, make_corpus, measure_purity

V, D, RATE = 7, 4, 0.1
SETTINGS: dict[str, Any] = dict(
    epochs=2, window=5, negatives=5, power=0.75, sample=0, lr=0.05, shared=3, row=3, rows=4
)
SETTINGS |= dict(least_ngram=2, most_ngram=0, buckets=13, bound=1e9)
WORDS = ["ab", "abc", "x", "bcd", "dog", "dogs", "é"]
Read = list[tuple[int, list[int], list[int]]]  # each word, those in its window, its negatives


def make_rows(method: Word2vec) -> tuple[WordRows, Read]:
    """The second of three updates, so that windows reach beyond it: three bands of four words, each
    with ten more, and four rows of three words.
    """
    draw, places = np.random.default_rng(0), np.arange(36)
    words, drawn = draw.integers(V, size=36), draw.integers(V, size=(3, 4, 3))
    left = np.minimum(draw.integers(6, size=36), places)
    right = np.minimum(draw.integers(6, size=36), 35 - places)
    left[14] = right[14] = 0
    settings = method.settings
    made = cut_rows(words, left, right, drawn, Bands(5, 12), settings, places)
    read: Read = []
    for t in range(12, 24):
        window = [c for c in range(t - left[t], t + right[t] + 1) if c != t]
        read.append((words[t], words[window].tolist(), drawn[1, (t - 12) // 3].tolist()))
    return list(made)[1], read


def make_tables(ngrams: Ngrams | None = None, bound: float = 1e9) -> WordTables:
    tables = WordTables(WORDS, D, ngrams, bound, torch.Generator().manual_seed(1))
    tables.inputs.mul_(4)
    tables.outputs.normal_(generator=torch.Generator().manual_seed(2))
    return tables


def sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


@dataclass
class Looped:
    """Loss, gradients, and how much all steps of a word count together."""

    u: np.ndarray
    v: np.ndarray
    loss: float = 0.0

    def __post_init__(self) -> None:
        self.of_u, self.of_v = np.zeros_like(self.u), np.zeros_like(self.v)
        self.count_u, self.count_v = np.zeros(len(self.u)), np.zeros(len(self.v))

    def pair(self, vector: np.ndarray, other: int, sign: int, weight: float) -> np.ndarray:
        """The gradient of the vector."""
        chance = sigmoid(sign * (vector @ self.v[other]))
        self.loss -= weight * np.log(chance)
        self.of_v[other] -= weight * sign * (1 - chance) * vector
        self.count_v[other] += weight
        gradient: np.ndarray = -weight * sign * (1 - chance) * self.v[other]
        return gradient


def loop_skipgram(read: Read, u: np.ndarray, v: np.ndarray) -> Looped:
    """One pair after the other."""
    made = Looped(u, v)
    for word, near, negatives in read:
        for c in near:
            made.of_u[word] += made.pair(u[word], c, 1, 1)
            for n in negatives:
                made.of_u[word] += made.pair(u[word], n, -1, 5 / 3)
            made.count_u[word] += 6
    return made


def loop_cbow(read: Read, u: np.ndarray, v: np.ndarray) -> Looped:
    """The same; the whole gradient of the mean goes to each word of the window."""
    made = Looped(u, v)
    for word, near, negatives in read:
        if not near:
            continue
        mean = np.mean([u[c] for c in near], 0)
        of_mean = made.pair(mean, word, 1, 1)
        for n in negatives:
            of_mean = of_mean + made.pair(mean, n, -1, 5 / 3)
        for c in near:
            made.of_u[c] += of_mean
            made.count_u[c] += 6
    return made


METHODS = [(SkipGram, loop_skipgram), (CBOW, loop_cbow)]


@pytest.mark.parametrize(("kind", "loop"), METHODS)
def test_loss_and_update_of_one_batch(kind: type[Word2vec], loop: Any) -> None:
    method, tables = kind(**SETTINGS), make_tables()
    rows, read = make_rows(method)
    u, v = tables.inputs.double().numpy(), tables.outputs.double().numpy()
    wanted = loop(read, u, v)
    assert float(method.loss(tables, rows)) == pytest.approx(wanted.loss, rel=1e-5)
    method.update(tables, rows, RATE)
    np.testing.assert_allclose(tables.inputs, u - RATE * wanted.of_u, atol=2e-6)
    np.testing.assert_allclose(tables.outputs, v - RATE * wanted.of_v, atol=2e-6)


@pytest.mark.parametrize(("kind", "loop"), METHODS)
def test_update_with_ngrams(kind: type[Word2vec], loop: Any) -> None:
    """A word is the mean of its rows, each of which moves by the whole step."""
    ngrams = Ngrams(2, 3, 13)
    method, tables = kind(**SETTINGS), make_tables(ngrams)
    rows, read = make_rows(method)
    before, v = tables.inputs.double().numpy().copy(), tables.outputs.double().numpy().copy()
    own = [[n, *(V + bucket for bucket in ngrams.find(word))] for n, word in enumerate(WORDS)]
    looped = loop(read, np.stack([before[each].mean(0) for each in own]), v)
    wanted = before.copy()
    for word, each in enumerate(own):
        for row in each:
            wanted[row] -= RATE * looped.of_u[word]
    method.update(tables, rows, RATE)
    np.testing.assert_allclose(tables.inputs, wanted, atol=5e-6)
    np.testing.assert_allclose(tables.outputs, v - RATE * looped.of_v, atol=2e-6)
    made = tables.finish()
    assert made.subwords is not None
    np.testing.assert_allclose(made.table[3], tables.inputs[own[3]].mean(0), atol=1e-6)
    unseen = tables.inputs[[V + bucket for bucket in ngrams.find("cats")]].mean(0)
    np.testing.assert_allclose(made.find("cats"), unseen, atol=1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "loop"), METHODS)
def test_steps_of_one_word_are_bounded(kind: type[Word2vec], loop: Any) -> None:
    """All pairs of a word in an update, times the rate, count `bound` together, at most."""
    bound = 1.5
    method, tables = kind(**SETTINGS), make_tables(bound=bound)
    rows, read = make_rows(method)
    u, v = tables.inputs.double().numpy().copy(), tables.outputs.double().numpy().copy()
    looped, least = loop(read, u, v), np.full(V, 1e-9)
    of_u = np.minimum(RATE, bound / np.maximum(looped.count_u, least))[:, None]
    of_v = np.minimum(RATE, bound / np.maximum(looped.count_v, least))[:, None]
    assert of_u.min() < RATE
    assert of_v.min() < RATE == of_v.max()  # some are bounded, and some are not
    method.update(tables, rows, RATE)
    np.testing.assert_allclose(tables.inputs, u - of_u * looped.of_u, atol=2e-6)
    np.testing.assert_allclose(tables.outputs, v - of_v * looped.of_v, atol=2e-6)
    steps = StepBound(2, 2.0)
    for _ in range(2):  # nothing stays of an update
        found = steps.find_steps(torch.tensor([0, 1, 0]), torch.tensor([1.0, 1.0, 3.0]), 1.0)
        assert found.tolist() == [-0.5, -1, -0.5]


def test_glove_of_one_batch() -> None:
    """Loss and AdaGrad of the paper as a loop, for a batch in which no word stands twice."""
    method = GloVe(epochs=1, window=2, x_max=10, power=0.75, lr=RATE, batch_size=4)
    sides = method.start(V, D, 0)
    u, v = (side.table.double().numpy().copy() for side in sides)
    first, second, counts = [0, 1, 2], [3, 1, 0], [2.0, 40.0, 0.5]
    for _ in range(2):
        given = (torch.tensor(each) for each in (first, second, counts))
        method.update(sides, *given)
    squares = [np.ones_like(u), np.ones_like(v)]
    for _ in range(2):
        for i, j, x in zip(first, second, counts, strict=True):
            error = u[i, :D] @ v[j, :D] + u[i, D] + v[j, D] - np.log(x)
            error *= min(1, (x / 10) ** 0.75)
            of_u, of_v = error * np.append(v[j, :D], 1), error * np.append(u[i, :D], 1)
            squares[0][i] += of_u**2
            squares[1][j] += of_v**2
            u[i] -= RATE * of_u / np.sqrt(squares[0][i])
            v[j] -= RATE * of_v / np.sqrt(squares[1][j])
    np.testing.assert_allclose(sides[0].table, u, atol=1e-6)
    np.testing.assert_allclose(sides[1].table, v, atol=1e-6)


def test_adagrad_adds_up_the_gradients_of_a_row() -> None:
    table = AdaGradTable(torch.zeros(2, 1))
    table.step(torch.tensor([1, 1]), torch.tensor([[1.0], [2.0]]), RATE)
    assert table.table.flatten().tolist() == pytest.approx([0, -RATE * 3 / 10**0.5])


LEARNERS: dict[str, VectorMethod] = {
    "skipgram": SkipGram(**{**SETTINGS, "bound": 4, "row": 8, "rows": 8}),
    "cbow": CBOW(**{**SETTINGS, "bound": 4, "row": 8, "rows": 8}),
    "fasttext": SkipGram(**{**SETTINGS, "bound": 4, "row": 8, "rows": 8, "most_ngram": 4}),
    "glove": GloVe(epochs=20, window=5, x_max=100, power=0.75, lr=0.05, batch_size=64),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LEARNERS)
def test_words_that_share_contexts_become_neighbours(name: str, tmp_path: Path) -> None:
    corpus, told = make_corpus(draw_sentences(), tmp_path), list[int]()
    made = LEARNERS[name].learn(corpus, width=16, seed=0, show=told.append)
    assert list(made.words) == corpus.words
    assert measure_purity(made.words, made.table) == 1
    assert told == sorted(told)
    assert told[-1] == LEARNERS[name].epochs * corpus.total
    again = LEARNERS[name].learn(corpus, width=16, seed=0, show=told.append)
    np.testing.assert_array_equal(made.table, again.table)
    other = LEARNERS[name].learn(corpus, width=16, seed=1, show=told.append)
    assert not np.array_equal(made.table, other.table)
