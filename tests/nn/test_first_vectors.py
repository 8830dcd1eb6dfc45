"""Vectors of tokens that start from the corpus: against the matrix of its pairs, made by loops."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from plmctl.nn.first_vectors import PairVectors, count_pairs, rank_pairs
from plmctl.nn.tables import TokenTable

SIZE, PRIOR = 12, 3.0
SPECIAL = np.arange(SIZE) < 2


def text(length: int = 600) -> np.ndarray:
    """Tokens 2 to 10, each drawn mostly from those just above the one before; 11 does not occur."""
    random = np.random.default_rng(0)
    ids = [2]
    for _ in range(length - 1):
        ids.append(int(random.choice([0, 1])) if random.random() < 0.05 else (ids[-1] * 2) % 9 + 2)
        if random.random() < 0.3:
            ids[-1] = int(random.integers(2, 11))
    return np.array(ids)


def matrix(ids: np.ndarray, power: float) -> np.ndarray:
    """[2V, V] by definition: `(p(v) p(w))^power log(1 + c(v, w) / (k p(w)))`."""
    pairs = Counter(zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True))
    share = [((ids == token).sum() + 1) / (len(ids) + SIZE) for token in range(SIZE)]
    filled = np.zeros((2 * SIZE, SIZE))
    for (v, w), count in pairs.items():
        if not SPECIAL[v] and not SPECIAL[w]:
            weight = (share[v] * share[w]) ** power
            filled[v, w] = weight * math.log(1 + count / (PRIOR * share[w]))
            filled[SIZE + w, v] = weight * math.log(1 + count / (PRIOR * share[v]))
    return filled


def products(power: float, width: int = SIZE) -> Tensor:
    """[V, V] which vectors point in which direction, and how long they are: no turn changes it."""
    vectors = rank_pairs(text(), SPECIAL, width, prior=PRIOR, power=power).double()
    return vectors @ vectors.T


@pytest.mark.parametrize("power", [0.0, 0.25, 0.5])
def test_products_are_those_of_the_singular_vectors(power: float) -> None:
    """V S V^T is the root of A^T A, here from its eigenvectors."""
    ids = text()
    a = matrix(ids, power)
    values, vectors = np.linalg.eigh(a.T @ a)
    root = vectors @ np.diag(np.sqrt(values.clip(0))) @ vectors.T
    share = (np.bincount(ids, minlength=SIZE) + 1) / (len(ids) + SIZE)
    expected = root / np.outer(share**power, share**power)
    assert np.allclose(products(power), expected, atol=1e-4 * np.abs(expected).max())


def test_fewer_columns_keep_the_strongest() -> None:
    ids = text()
    _, s, vt = np.linalg.svd(matrix(ids, 0.0))
    expected = (vt[:4].T * s[:4]) @ vt[:4]
    assert np.allclose(products(0.0, width=4), expected, atol=1e-4)


def test_the_whole_matrix_is_a_bigram_model() -> None:
    """`p(w) exp(A[v, w])`, scaled to 1, is `(c(v, w) + k p(w)) / (c(v) + k)`."""
    ids = np.where(text() < 2, 2, text())
    share = (np.bincount(ids, minlength=SIZE) + 1) / (len(ids) + SIZE)
    counts = np.zeros((SIZE, SIZE))
    for v, w in itertools.pairwise(ids):
        counts[v, w] += 1
    chances = share * np.exp(matrix(ids, 0.0)[:SIZE])
    chances /= chances.sum(1, keepdims=True)
    expected = (counts + PRIOR * share) / (counts.sum(1, keepdims=True) + PRIOR)
    assert np.allclose(chances, expected)


def test_pairs_of_the_text_alone() -> None:
    before, after, counts = count_pairs(np.array([3, 4, 3, 4, 0, 3, 5]), SPECIAL)
    found = dict(zip(zip(before, after, strict=True), counts, strict=True))
    assert found == {(3, 4): 2, (4, 3): 1, (3, 5): 1}


def test_rows_that_are_in_no_pair_stay_as_drawn() -> None:
    torch.manual_seed(1)
    table = TokenTable(vocab_size=SIZE, width=4)
    table.weight.data.mul_(0.02)
    drawn = table.weight.detach().clone()
    PairVectors(prior=PRIOR, power=0.25).start(table, text(), SPECIAL)
    changed = (table.weight != drawn).any(1)
    assert changed.tolist() == [2 <= row <= 10 for row in range(len(drawn))]
    lengths = [weight[2:11].pow(2).mean() for weight in (table.weight, drawn)]
    assert lengths[0].item() == pytest.approx(lengths[1].item(), rel=1e-5)


def test_a_text_without_pairs_changes_nothing() -> None:
    table = TokenTable(vocab_size=SIZE, width=4)
    drawn = table.weight.detach().clone()
    PairVectors(prior=PRIOR, power=0.25).start(table, np.array([3, 0, 4]), SPECIAL)
    assert torch.equal(table.weight, drawn)


def test_the_same_text_gives_the_same_vectors_and_leaves_random_numbers_alone() -> None:
    torch.manual_seed(5)
    first = rank_pairs(text(), SPECIAL, 4, prior=PRIOR, power=0.25)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), drawn)
    assert torch.equal(rank_pairs(text(), SPECIAL, 4, prior=PRIOR, power=0.25), first)
