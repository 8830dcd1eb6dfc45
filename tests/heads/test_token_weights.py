"""Means in which rare tokens weigh more, against loops over tokens and scikit-learn's counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfTransformer

from plmctl.heads.token_weights import (
    TOKEN_WEIGHTS,
    TokenFrequencies,
    pool_weighted,
    weigh_rare,
    weigh_smoothly,
)
from tests.objectives.contrastive import V, batch_of, cells_of, encoder

LENGTHS = [10, 4, 1, 7]


def test_counts_are_those_of_a_loop() -> None:
    texts = [[3, 3, 1], [], [1], [0, 4, 4, 4]]
    counts = TokenFrequencies.of(texts, size=6)
    assert counts.texts == 3
    assert counts.holding.tolist() == [sum(t in own for own in texts) for t in range(6)]
    assert counts.said.tolist() == [sum(own.count(t) for own in texts) for t in range(6)]


def test_inverse_document_frequency_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 30, rng.integers(1, 12)).tolist() for _ in range(40)]
    bags = np.array([[own.count(t) for t in range(30)] for own in texts])
    wanted = TfidfTransformer(smooth_idf=True).fit(bags).idf_ - 1  # it adds one to all
    np.testing.assert_allclose(weigh_rare(TokenFrequencies.of(texts, size=30)), wanted)


def test_smooth_inverse_frequency() -> None:
    counts = TokenFrequencies.of([[0] * 6 + [1], [1, 2, 2]], size=4)
    wanted = [1e-3 / (1e-3 + share) for share in (0.6, 0.2, 0.2, 0.0)]
    np.testing.assert_allclose(weigh_smoothly(counts), wanted)
    assert weigh_smoothly(counts)[3] == 1


@pytest.mark.parametrize("name", TOKEN_WEIGHTS)
def test_the_weighted_mean_of_a_text(name: str) -> None:
    model, rows = encoder(0.0, layers=2).eval(), cells_of(LENGTHS)
    batch, ids = batch_of(rows), rows.seqs["text"].ids
    texts = [ids[row, :length].tolist() for row, length in enumerate(LENGTHS)]
    weights = torch.from_numpy(TOKEN_WEIGHTS[name](TokenFrequencies.of(texts, size=V)))
    weights[texts[2][0]] = 0  # a text of this token alone weighs nothing
    found = pool_weighted(model, batch, weights)
    states = model(batch).last
    for row, text in enumerate(texts):
        own = [float(weights[token]) for token in text]
        wanted = torch.zeros(states.shape[-1], dtype=states.dtype)
        for token, weight in enumerate(own):
            wanted += states[row, token] * weight / (math.fsum(own) or 1)
        torch.testing.assert_close(found[row], wanted)
    assert not found[2].any()
    assert found[0].any()
