"""Encoders before a head: every row alone, without its padding, gives the same; and from the
formula, step by step.
"""

import math

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.heads.encoders import CNN, BiGRU, BiLSTM
from plmctl.nn.init import truncated_normal

W, H, T = 5, 3, 7
LENGTHS = [7, 1, 4]
RECURRENT = {"width": W, "hidden_width": H, "num_layers": 2, "dropout": 0.0}
MADE = [lambda: BiLSTM(**RECURRENT), lambda: BiGRU(**RECURRENT), lambda: CNN(**RECURRENT, kernel=3)]
IDS = ["bilstm", "gru", "cnn"]


def _made(make):
    torch.manual_seed(1)
    return make().double()


def _features():
    x = torch.randn(
        len(LENGTHS), T, W, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    return x, torch.arange(T) < torch.tensor(LENGTHS)[:, None]


@pytest.mark.parametrize("make", MADE, ids=IDS)
def test_a_row_does_not_see_its_padding(make):
    encoder, (x, real) = _made(make), _features()
    found = encoder(x, real)
    assert found.shape == (len(LENGTHS), T, encoder.width)
    for row, length in enumerate(LENGTHS):
        alone = encoder(x[row : row + 1, :length], torch.ones(1, length, dtype=torch.bool))
        assert torch.allclose(found[row, :length], alone[0], atol=1e-10)
        assert not found[row, length:].any()


@pytest.mark.parametrize("make", MADE, ids=IDS)
def test_padding_receives_no_gradient_and_may_stand_anywhere(make):
    encoder, (x, real) = _made(make), _features()
    x.requires_grad_()
    encoder(x, real).square().sum().backward()
    assert not x.grad[~real].any()
    assert x.grad[real].abs().sum(-1).min() > 0
    shifted = encoder(
        x.roll(2, 1), torch.tensor([[i >= 2 for i in range(T)]] * 3) & real.roll(2, 1)
    )
    # padding on both sides
    assert torch.allclose(shifted[2, 2:6], encoder(x, real)[2, :4], atol=1e-10)


def test_bilstm_is_the_formula():
    """One layer: i, f, g, o = W_i x + b_i + W_h h + b_h; c = f c + i g; h = o tanh c; backwards
    from a row's last token.
    """
    encoder, (x, real) = _made(lambda: BiLSTM(**RECURRENT | {"num_layers": 1})), _features()
    found = encoder(x, real)

    def sigmoid(value):
        return 1 / (1 + math.exp(-value))

    for row, length in enumerate(LENGTHS):
        for side, suffix in enumerate(("", "_reverse")):
            w_x, w_h, b_x, b_h = (
                getattr(encoder.layers, f"{name}_l0{suffix}").tolist()
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            h, c = [0.0] * H, [0.0] * H
            for t in range(length) if side == 0 else reversed(range(length)):
                gates = [
                    sum(a * b for a, b in zip(w_x[k], x[row, t].tolist(), strict=True))
                    + sum(a * b for a, b in zip(w_h[k], h, strict=True))
                    + b_x[k]
                    + b_h[k]
                    for k in range(4 * H)
                ]
                i, f, o = ([sigmoid(v) for v in gates[k * H : (k + 1) * H]] for k in (0, 1, 3))
                g = [math.tanh(v) for v in gates[2 * H : 3 * H]]
                c = [f[k] * c[k] + i[k] * g[k] for k in range(H)]
                h = [o[k] * math.tanh(c[k]) for k in range(H)]
                assert found[row, t, side * H : (side + 1) * H].tolist() == pytest.approx(
                    h, abs=1e-10
                )


def test_cnn_is_the_formula():
    encoder, (x, real) = _made(lambda: CNN(**RECURRENT | {"num_layers": 1}, kernel=3)), _features()
    found, weight, bias = encoder(x, real), encoder.layers[0].weight, encoder.layers[0].bias
    for row, length in enumerate(LENGTHS):
        for t in range(length):
            total = bias.clone()
            for k in (-1, 0, 1):
                if 0 <= t + k < length:
                    total += weight[:, :, k + 1] @ x[row, t + k]
            assert torch.allclose(found[row, t], total.clamp(min=0), atol=1e-10)


def test_first_weights_come_from_the_seed():
    numbers = []
    for seed in (3, 3, 4):
        encoder = BiLSTM(**RECURRENT)
        truncated_normal(
            torch.nn.ModuleList([encoder]), std=0.02, generator=torch.Generator().manual_seed(seed)
        )
        numbers.append(torch.cat([p.detach().flatten() for p in encoder.parameters()]))
    assert torch.equal(numbers[0], numbers[1])
    assert not torch.equal(numbers[0], numbers[2])
    assert numbers[0].abs().max() <= H**-0.5
    assert numbers[0].std() > 0.25 * H**-0.5  # not the 0.02 of the backbone


def test_an_even_kernel_is_refused():
    with pytest.raises(ConfigError, match="kernel=4: an odd number"):
        CNN(**RECURRENT, kernel=4)
