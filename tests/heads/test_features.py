"""Layer choice and mixing against their formulas, position by position."""

import math

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.heads.features import Concat, Layer, Layers, ScalarMix, Sum
from plmctl.nn.init import truncated_normal

B, T, W, L = 2, 3, 4, 5
SIZE = {"width": W, "num_layers": L}


@pytest.fixture
def hidden() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(B, T, W, generator=generator, dtype=torch.float64) for _ in range(L + 1)]


@pytest.mark.parametrize(("layer", "place"), [(0, 0), (1, 1), (-1, L), (-2, L - 1), (-L - 1, 0)])
def test_one_layer(hidden, layer, place):
    assert torch.equal(Layer(**SIZE, layer=layer)(hidden), hidden[place])


@pytest.mark.parametrize("layers", [[-4, -3, -2, -1], [0, 2], [3]])
def test_sum_and_concat(hidden, layers):
    total, side = Sum(**SIZE, layers=layers), Concat(**SIZE, layers=layers)
    assert (total.width, side.width) == (W, W * len(layers))
    for b in range(B):
        for t in range(T):
            rows = [[float(x) for x in hidden[layer][b, t]] for layer in layers]
            assert total(hidden)[b, t].tolist() == pytest.approx(
                [sum(column) for column in zip(*rows, strict=True)], abs=1e-10
            )
            assert side(hidden)[b, t].tolist() == [x for row in rows for x in row]


@pytest.mark.parametrize("layers", [None, [-4, -3, -2, -1], [0, 1, 2, 3, 4, 5]])
def test_the_mix_is_elmos(hidden, layers):
    mix = ScalarMix(**SIZE, layers=layers).double()
    chosen = list(range(1, L + 1)) if layers is None else layers
    with torch.no_grad():
        mix.scores.copy_(torch.linspace(-1, 2, len(chosen)))
        mix.gamma.fill_(1.7)
    found = mix(hidden).detach()
    raw = [math.exp(s) for s in mix.scores.tolist()]
    for b in range(B):
        for t in range(T):
            for w in range(W):
                slow = sum(
                    e / sum(raw) * float(hidden[layer][b, t, w])
                    for e, layer in zip(raw, chosen, strict=True)
                )
                assert float(found[b, t, w]) == pytest.approx(1.7 * slow, abs=1e-10)


def test_the_mix_begins_as_the_mean_whatever_the_models_rule(hidden):
    mix = ScalarMix(**SIZE).double()
    torch.nn.init.normal_(mix.scores)
    torch.nn.init.normal_(mix.gamma)
    truncated_normal(torch.nn.ModuleList([mix]), std=0.02, generator=torch.Generator())
    assert torch.allclose(mix(hidden), torch.stack(hidden[1:]).mean(0), atol=1e-12)


def test_only_chosen_layers_receive_gradient(hidden):
    for state in hidden:
        state.requires_grad_()
    ScalarMix(**SIZE, layers=[-2, 1]).double()(hidden).sum().backward()
    assert [place for place, state in enumerate(hidden) if state.grad is not None] == [1, L - 1]


@pytest.mark.parametrize("layers", [[6], [-7], [1, 99]])
def test_layers_that_are_not_there(layers):
    with pytest.raises(
        ConfigError,
        match=r"layers=.*0 \(the embedding output\) to 5, or -1 \(the last layer\) to -6",
    ):
        Layers(**SIZE, layers=layers)
    with pytest.raises(ConfigError, match="at least one layer"):
        Sum(**SIZE, layers=[])
