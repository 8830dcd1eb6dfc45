"""word2vec and GloVe: losses and updates as float64 loops over pairs of words, n-grams as sums over
rows, and words that share contexts, which must become neighbours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.knowledge.subwords import Ngrams
from plmctl.vectors.base import VectorMethod
from plmctl.vectors.glove import AdaGradTable, GloVe
from plmctl.vectors.tables import StepBound, WordTables
from plmctl.vectors.windows import WordRows
from plmctl.vectors.word2vec import CBOW, SkipGram, Word2vec
from tests.vectors.tiny_text import draw_sentences, make_corpus, measure_purity

V, D, RATE = 7, 4, 0.1
SETTINGS: dict[str, Any] = dict(
    epochs=2, window=2, negatives=5, power=0.75, sample=0, lr=0.05, shared=3, row=4, rows=2
)
SETTINGS |= dict(least_ngram=2, most_ngram=0, buckets=13, bound=1e9)
WORDS = ["ab", "abc", "x", "bcd", "dog", "dogs", "é"]


def make_rows(seed: int = 0) -> WordRows:
    """Two rows of four words, with a window of two."""
    draw = torch.Generator().manual_seed(seed)
    around = torch.randint(0, V, (2, 8), generator=draw)
    inside = torch.rand(2, 4, 8, generator=draw) < 0.4
    inside[1, 2] = False  # a word without a window
    for t in range(4):
        inside[:, t, t + 2] = False  # itself
    return WordRows(around, inside, torch.randint(0, V, (2, 3), generator=draw), 8)


def make_tables(ngrams: Ngrams | None = None, bound: float = 1e9) -> WordTables:
    tables = WordTables(WORDS, D, ngrams, bound, torch.Generator().manual_seed(1))
    tables.inputs.mul_(4)
    tables.outputs.normal_(generator=torch.Generator().manual_seed(2))
    return tables


def sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


def loop_skipgram(rows: WordRows, u: np.ndarray, v: np.ndarray) -> tuple[float, Any, Any]:
    """(loss, gradients of inputs and outputs): one pair after the other."""
    loss, of_u, of_v = 0.0, np.zeros_like(u), np.zeros_like(v)
    for m in range(2):
        for t in range(4):
            word = int(rows.words[m, t])
            for c in range(8):
                if not rows.inside[m, t, c]:
                    continue
                pairs = [(int(rows.around[m, c]), 1.0, 1.0)]
                pairs += [(int(n), -1.0, 5 / 3) for n in rows.negatives[m]]
                for other, sign, weight in pairs:
                    chance = sigmoid(sign * (u[word] @ v[other]))
                    loss -= weight * np.log(chance)
                    of_u[word] -= weight * sign * (1 - chance) * v[other]
                    of_v[other] -= weight * sign * (1 - chance) * u[word]
    return loss, of_u, of_v


def loop_cbow(rows: WordRows, u: np.ndarray, v: np.ndarray) -> tuple[float, Any, Any]:
    """The same; the whole gradient of the mean goes to each word of the window."""
    loss, of_u, of_v = 0.0, np.zeros_like(u), np.zeros_like(v)
    for m in range(2):
        for t in range(4):
            near = [int(rows.around[m, c]) for c in range(8) if rows.inside[m, t, c]]
            if not near:
                continue
            mean, of_mean = np.mean([u[n] for n in near], 0), np.zeros(D)
            pairs = [(int(rows.words[m, t]), 1.0, 1.0)]
            pairs += [(int(n), -1.0, 5 / 3) for n in rows.negatives[m]]
            for other, sign, weight in pairs:
                chance = sigmoid(sign * (mean @ v[other]))
                loss -= weight * np.log(chance)
                of_mean -= weight * sign * (1 - chance) * v[other]
                of_v[other] -= weight * sign * (1 - chance) * mean
            for n in near:
                of_u[n] += of_mean
    return loss, of_u, of_v


METHODS = [(SkipGram, loop_skipgram), (CBOW, loop_cbow)]


@pytest.mark.parametrize(("kind", "loop"), METHODS)
def test_loss_and_update_of_one_batch(kind: type[Word2vec], loop: Any) -> None:
    method, tables, rows = kind(**SETTINGS), make_tables(), make_rows()
    u, v = tables.inputs.double().numpy(), tables.outputs.double().numpy()
    loss, of_u, of_v = loop(rows, u, v)
    assert float(method.loss(tables, rows)) == pytest.approx(loss, rel=1e-5)
    method.update(tables, rows, RATE)
    np.testing.assert_allclose(tables.inputs, u - RATE * of_u, atol=1e-6)
    np.testing.assert_allclose(tables.outputs, v - RATE * of_v, atol=1e-6)


@pytest.mark.parametrize(("kind", "loop"), METHODS)
def test_update_with_ngrams(kind: type[Word2vec], loop: Any) -> None:
    """A word is the mean of its rows, each of which moves by the whole step."""
    ngrams = Ngrams(2, 3, 13)
    method, tables, rows = kind(**SETTINGS), make_tables(ngrams), make_rows()
    before, v = tables.inputs.double().numpy().copy(), tables.outputs.double().numpy().copy()
    own = [[n, *(V + bucket for bucket in ngrams.find(word))] for n, word in enumerate(WORDS)]
    u = np.stack([before[each].mean(0) for each in own])
    _, of_u, of_v = loop(rows, u, v)
    wanted = before.copy()
    for word, each in enumerate(own):
        for row in each:
            wanted[row] -= RATE * of_u[word]
    method.update(tables, rows, RATE)
    np.testing.assert_allclose(tables.inputs, wanted, atol=1e-6)
    np.testing.assert_allclose(tables.outputs, v - RATE * of_v, atol=1e-6)
    made = tables.finish()
    assert made.subwords is not None
    np.testing.assert_allclose(made.table[3], tables.inputs[own[3]].mean(0), atol=1e-6)
    unseen = tables.inputs[[V + bucket for bucket in ngrams.find("cats")]].mean(0)
    np.testing.assert_allclose(made.find("cats"), unseen, atol=1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "loop"), METHODS)
def test_steps_of_one_word_are_bounded(kind: type[Word2vec], loop: Any) -> None:
    """All pairs of a word in an update count `bound` together, at most; here for inputs of the
    word 0, which is everywhere.
    """
    rows = make_rows()
    rows.around.zero_()
    method, tables = kind(**SETTINGS), make_tables(bound=0.05)
    u, v = tables.inputs.double().numpy().copy(), tables.outputs.double().numpy().copy()
    _, of_u, _ = loop(rows, u, v)
    total = 6 * float(rows.inside.sum())  # one for each pair, five for its negatives
    method.update(tables, rows, RATE)
    wanted = u[0] - RATE * of_u[0] * 0.05 / (RATE * total)
    np.testing.assert_allclose(tables.inputs[0], wanted, atol=1e-6)
    bound = StepBound(2, 2.0)
    for _ in range(2):  # nothing stays of an update
        factors = bound.factors(torch.tensor([0, 1, 0]), torch.tensor([1.0, 1.0, 3.0]))
        assert factors.tolist() == [0.5, 1, 0.5]


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
