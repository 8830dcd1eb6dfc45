"""Layer norm before the mix, its penalty and dropout, and a second mix beside the encoder,
number by number.
"""

from __future__ import annotations

import math

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.heads.features import Beside, ScalarMix

B, T, W, L = 2, 4, 3, 2
REAL = torch.tensor([[True, True, True, False], [True, True, False, False]])


@pytest.fixture
def hidden() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(B, T, W, generator=generator, dtype=torch.float64) * (n + 1) + n
        for n in range(L + 1)
    ]


def by_hand(
    hidden: list[torch.Tensor], scores: list[float], gamma: float
) -> list[list[list[float]]]:
    raw = [math.exp(s) for s in scores]
    layers = []
    for state in hidden:
        numbers = [float(x) for b in range(B) for t in range(T) if REAL[b, t] for x in state[b, t]]
        mean = sum(numbers) / len(numbers)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in numbers) / len(numbers) + 1e-12)
        layers.append(
            [
                [[(float(x) - mean) / deviation for x in state[b, t]] for t in range(T)]
                for b in range(B)
            ]
        )
    return [
        [
            [
                gamma
                * sum(e / sum(raw) * layer[b][t][w] for e, layer in zip(raw, layers, strict=True))
                for w in range(W)
            ]
            for t in range(T)
        ]
        for b in range(B)
    ]


def test_the_norm_is_over_all_real_numbers_of_a_layer(hidden) -> None:
    mix = ScalarMix(width=W, num_layers=L, layers=[0, 1, 2], norm=True).double()
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([-1.0, 0.5, 2.0]))
        mix.gamma.fill_(1.3)
    found, wanted = mix(hidden, REAL), by_hand(hidden, [-1.0, 0.5, 2.0], 1.3)
    for b in range(B):
        for t in range(T):
            if REAL[b, t]:
                assert found[b, t].tolist() == pytest.approx(wanted[b][t], abs=1e-10)
    hidden[1][0, 3] = 1e6  # padding may hold anything
    assert torch.allclose(mix(hidden, REAL)[REAL], found[REAL])


def test_beside(hidden) -> None:
    found = torch.randn(B, T, 5).double()
    beside = Beside(width=5, state_width=W, num_layers=L).double()
    with torch.no_grad():
        beside.mix.scores.copy_(torch.tensor([0.3, -0.2]))
    out = beside(found, hidden, REAL)
    assert beside.width == out.shape[-1] == 5 + W
    assert torch.equal(out[..., :5], found)
    assert torch.equal(out[..., 5:], beside.mix(hidden))


def test_the_penalty_is_of_the_weights_before_their_softmax() -> None:
    """`lambda sum_j s_j^2` and its gradient, 2 lambda s_j; gamma costs nothing."""
    beside = Beside(width=5, state_width=W, num_layers=L, layers=[0, 1, 2], penalty=0.3).double()
    scores = [-1.0, 0.5, 2.0]
    with torch.no_grad():
        beside.mix.scores.copy_(torch.tensor(scores))
    penalty = beside.mix.penalty()
    penalty.backward()
    assert penalty.item() == pytest.approx(0.3 * sum(s * s for s in scores), abs=1e-10)
    assert beside.mix.scores.grad.tolist() == pytest.approx(
        [2 * 0.3 * s for s in scores], abs=1e-10
    )
    assert beside.mix.gamma.grad is None
    with pytest.raises(ConfigError, match="penalty=-1"):
        ScalarMix(width=W, num_layers=L, penalty=-1)


def test_dropout_is_of_the_mix_alone(hidden) -> None:
    """Each number of the mix is 0 or 1 / kept of what evaluation gives; what it stands beside is
    left as it is.
    """
    beside, found = (
        Beside(width=5, state_width=W, num_layers=L, dropout=0.5).double(),
        torch.randn(B, T, 5).double(),
    )
    torch.manual_seed(0)
    trained, whole = beside(found, hidden), beside.eval()(found, hidden)
    assert torch.equal(trained[..., :5], found)
    share = (trained / whole)[..., 5:].flatten().tolist()
    assert {round(x, 10) for x in share} == {0.0, 2.0}
    assert 4 <= share.count(0.0) <= 20  # of 24
