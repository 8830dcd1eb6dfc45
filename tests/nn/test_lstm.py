"""The projected, clipped LSTM: against a loop over numbers, and against torch's own where
nothing is clipped.
"""

from __future__ import annotations

import math

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.nn.lstm import ProjectedLSTM

W, H, P, B, T = 3, 4, 2, 3, 6


def made(clip: float | None, scale: float = 1.0) -> ProjectedLSTM:
    lstm = ProjectedLSTM(width=W, hidden_width=H, projected_width=P, clip=clip).double()
    lstm.start(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.mul_(scale)
    return lstm


def given() -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(1)
    return torch.randn(B, T, W).double(), (torch.randn(B, P).double(), torch.randn(B, H).double())


def by_hand(
    lstm: ProjectedLSTM, xs: list[list[float]], h: list[float], c: list[float], clip: float
) -> list[list[float]]:
    dot = lambda row, x: sum(a * b for a, b in zip(row, x, strict=True))  # noqa: E731
    cut = lambda v: max(-clip, min(clip, v))  # noqa: E731
    sigmoid = lambda v: 1 / (1 + math.exp(-v))  # noqa: E731
    w, u, b = lstm.input.weight.tolist(), lstm.recurrent.weight.tolist(), lstm.input.bias.tolist()
    found = []
    for x in xs:
        gates = [dot(w[k], x) + dot(u[k], h) + b[k] for k in range(4 * H)]
        i, f, g, o = (gates[k * H : (k + 1) * H] for k in range(4))
        c = [cut(sigmoid(f[k]) * c[k] + sigmoid(i[k]) * math.tanh(g[k])) for k in range(H)]
        m = [sigmoid(o[k]) * math.tanh(c[k]) for k in range(H)]
        h = [cut(dot(row, m)) for row in lstm.projection.weight.tolist()]
        found.append(h)
    return found


@pytest.mark.parametrize(("clip", "scale"), [(0.3, 3.0), (3.0, 1.0)])
def test_it_is_the_formula(clip: float, scale: float) -> None:
    lstm, (x, (h, c)) = made(clip, scale), given()
    found, after = lstm(x, (h, c))
    # something is clipped in the first case
    assert (found.abs().max().item() == clip) == (clip < 1)
    for row in range(B):
        wanted = by_hand(lstm, x[row].tolist(), h[row].tolist(), c[row].tolist(), clip)
        assert found[row].flatten().tolist() == pytest.approx(
            [v for step in wanted for v in step], abs=1e-10
        )
    assert torch.equal(after[0], found[:, -1])


def test_without_clipping_it_is_torchs_own() -> None:
    lstm, (x, (h, c)) = made(None), given()
    other = torch.nn.LSTM(W, H, proj_size=P, batch_first=True).double()
    with torch.no_grad():
        other.weight_ih_l0.copy_(lstm.input.weight)
        other.weight_hh_l0.copy_(lstm.recurrent.weight)
        other.bias_ih_l0.copy_(lstm.input.bias)
        other.bias_hh_l0.zero_()
        other.weight_hr_l0.copy_(lstm.projection.weight)
    wanted, (last_h, last_c) = other(x, (h[None], c[None]))
    found, after = lstm(x, (h, c))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(after, (last_h[0], last_c[0]), rtol=0, atol=1e-12)
    found.square().sum().backward()
    wanted.square().sum().backward()
    torch.testing.assert_close(
        lstm.recurrent.weight.grad, other.weight_hh_l0.grad, rtol=0, atol=1e-10
    )


def test_padding_and_restarts() -> None:
    lstm, (x, (h, c)) = made(3.0), given()
    length = [6, 4, 0]
    real = torch.arange(T) < torch.tensor(length)[:, None]
    keep = torch.ones(B, T, dtype=torch.bool)
    keep[0, 2] = False
    found, after = lstm(x, (h, c), keep=keep, real=real)
    begin, state = lstm(x[:1, :2], (h[:1], c[:1]))
    rest, end = lstm(x[:1, 2:], (torch.zeros_like(state[0]), torch.zeros_like(state[1])))
    torch.testing.assert_close(found[:1], torch.cat([begin, rest], 1))
    torch.testing.assert_close(after[1][:1], end[1])
    short, state = lstm(x[1:2, :4], (h[1:2], c[1:2]))
    torch.testing.assert_close(found[1:2, :4], short)
    torch.testing.assert_close((after[0][1:2], after[1][1:2]), state)
    assert not found[1, 4:].any()
    assert torch.equal(after[0][2], h[2])
    assert torch.equal(after[1][2], c[2])


def test_memory_keeps_its_digits_under_autocast() -> None:
    lstm, (x, (h, c)) = made(3.0).float(), given()
    wanted = lstm(x.float(), (h.float(), c.float()))[0]
    with torch.autocast("cpu", torch.bfloat16):
        found, after = lstm(x.float(), (h.float(), c.float()))
    assert (found.dtype, after[1].dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.03)


def test_first_weights() -> None:
    lstm = ProjectedLSTM(width=8, hidden_width=32, projected_width=8, clip=3.0)
    lstm.start(torch.Generator().manual_seed(0))
    assert lstm.input.bias.view(4, 32).tolist() == [[0.0] * 32, [1.0] * 32, [0.0] * 32, [0.0] * 32]
    assert lstm.input.weight.abs().max() <= (6 / (16 + 128)) ** 0.5
    with pytest.raises(ConfigError, match="clip"):
        ProjectedLSTM(width=8, hidden_width=32, projected_width=8, clip=0.0)
