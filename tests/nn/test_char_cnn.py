"""Words from characters: against the formula written as loops over filters and windows."""

from __future__ import annotations

import math

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.nn.char_cnn import CharCNN

FILTERS = [[1, 2], [2, 3], [3, 2]]


def made(**numbers) -> CharCNN:
    cnn = CharCNN(width=4, filters=FILTERS, char_width=3, num_characters=12, **numbers).double()
    cnn.start(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for name, parameter in cnn.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
    return cnn


def by_hand(cnn: CharCNN, word: list[int]) -> list[float]:
    table = cnn.characters.weight.tolist()
    x = []
    for (size, number), convolution in zip(FILTERS, cnn.convolutions, strict=True):
        weight, bias = convolution.weight.tolist(), convolution.bias.tolist()
        for n in range(number):
            windows = [
                bias[n]
                + sum(
                    weight[n][e][k] * table[word[start + k]][e]
                    for e in range(3)
                    for k in range(size)
                )
                for start in range(len(word) - size + 1)
            ]
            x.append(max(0.0, max(windows)))
    rows = lambda linear, x: [  # noqa: E731
        b + sum(w * v for w, v in zip(row, x, strict=True))
        for row, b in zip(linear.weight.tolist(), linear.bias.tolist(), strict=True)
    ]
    for carry, transform in zip(cnn.carry, cnn.transform, strict=True):
        gate = [1 / (1 + math.exp(-v)) for v in rows(carry, x)]
        x = [
            g * max(0.0, t) + (1 - g) * v
            for g, t, v in zip(gate, rows(transform, x), x, strict=True)
        ]
    return rows(cnn.projection, x)


def test_it_is_the_formula_and_cut_columns_change_nothing() -> None:
    cnn = made()
    words = torch.full((4, 10), 11)
    for row, word in enumerate(
        [[9, 1, 10], [9, 2, 3, 4, 10], [9, 1, 2, 3, 4, 5, 6, 7, 8, 10], [9, 10]]
    ):
        words[row, : len(word)] = torch.tensor(word)
    for chosen in ([0, 1, 3], [0, 1, 2, 3], [3]):  # with and without a word that needs all columns
        assert (cnn._trim(words[chosen]).shape[1] < 10) == (2 not in chosen)
        for word, found in zip(words[chosen].tolist(), cnn(words[chosen]).tolist(), strict=True):
            assert found == pytest.approx(by_hand(cnn, word), abs=1e-10)


def test_first_weights_are_the_published_ones() -> None:
    cnn = CharCNN(width=64, filters=[[1, 32], [7, 96]])
    cnn.start(torch.Generator().manual_seed(1))
    assert cnn.characters.weight.abs().max() <= 1
    assert cnn.characters.weight.std().item() == pytest.approx(3**-0.5, rel=0.05)
    assert cnn.convolutions[1].weight.std().item() == pytest.approx(0.05 / 3**0.5, rel=0.05)
    assert cnn.transform[0].weight.std().item() == pytest.approx(128**-0.5, rel=0.05)
    assert cnn.carry[1].bias.eq(-2).all()
    again = CharCNN(width=64, filters=[[1, 32], [7, 96]])
    again.start(torch.Generator().manual_seed(1))
    assert all(torch.equal(a, b) for a, b in zip(cnn.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("filters", [[], [[3]], [[0, 4]]])
def test_filters_are_pairs(filters: list[list[int]]) -> None:
    with pytest.raises(ConfigError, match="pairs of width and number"):
        CharCNN(width=4, filters=filters)
