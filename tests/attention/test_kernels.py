"""The CPU kernel against torch's attention and a literal loop; dropout is exact in expectation
and in its gradient.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd import gradcheck

from plmctl.attention.kernels.dense import Mask, _Attend, attend
from plmctl.attention.kernels.keep import apply_mask, draw_mask, keep_rate
from plmctl.attention.patterns.base import Full, Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.padding import Padding
from plmctl.core.batch import Seq

B, H, T, D = 2, 3, 7, 4
DOCUMENT = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 2, 2]])
SEQ = Seq(torch.zeros(B, T, dtype=torch.long), torch.tensor([7, 5]), {"document": DOCUMENT})


def _qkv(seed: int = 0, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(B, H, T, D, generator=g, dtype=dtype).requires_grad_() for _ in range(3)]


def _own(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Mask,
    bias: torch.Tensor | None,
    rate: float,
) -> torch.Tensor:
    return _Attend.apply(q, k, v, bias, *(mask.derive(q, k) or (None, None)), rate)


def _loop(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, allowed: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    out = torch.zeros_like(q)
    for b in range(B):
        for h in range(H):
            for i in range(T):
                keys = [j for j in range(T) if allowed[b, h, i, j]]
                e = [
                    math.exp(
                        float(q[b, h, i] @ k[b, h, j]) / math.sqrt(D) + float(bias[b, h, i, j])
                    )
                    for j in keys
                ]
                for j, x in zip(keys, e, strict=True):
                    out[b, h, i] += x / sum(e) * v[b, h, j]
    return out


@pytest.mark.parametrize("pattern", [Full(), Causal(), Full() & Padding() & Documents(), ~Causal()])
@pytest.mark.parametrize("with_bias", [False, True])
def test_both_kernels_are_the_definition(pattern: Pattern, with_bias: bool) -> None:
    q, k, v = _qkv()
    mask = Mask.of(pattern, SEQ)
    dense = pattern.dense(SEQ)
    allowed = (
        torch.ones(B, H, T, T, dtype=torch.bool) if dense is None else dense.expand(B, H, T, T)
    )
    bias = (
        torch.randn(1, H, T, T, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        if with_bias
        else None
    )
    zeros = torch.zeros(B, H, T, T, dtype=torch.float64)
    expected = _loop(
        q.detach(),
        k.detach(),
        v.detach(),
        allowed,
        zeros if bias is None else bias.expand(B, H, T, T),
    )
    weight = torch.randn(
        expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
    )
    grads = []
    for out in (_own(q, k, v, mask, bias, 0.0), attend(q, k, v, mask=mask, bias=bias)):
        torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)
        grads.append(torch.autograd.grad((out * weight).sum(), (q, k, v)))
    torch.testing.assert_close(*grads, atol=1e-10, rtol=1e-10)


# "fast": along one random direction, in place of each entry
@pytest.mark.parametrize("fast", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_gradients_with_dropout_and_bias(fast: bool) -> None:
    q, k, v = _qkv()
    bias = torch.randn(
        1, H, T, T, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    ).requires_grad_()
    mask = Mask.of(Causal() & Documents(), SEQ)

    def run(*given: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        return _own(*given[:3], mask, given[3], 0.25)

    assert gradcheck(run, (q, k, v, bias), fast_mode=fast)


@pytest.mark.slow  # test_banded.py has it of the same kernels
def test_dropout_is_exact_in_expectation() -> None:
    q, k, v = (x.detach() for x in _qkv())
    torch.manual_seed(0)
    many = [_own(q, k, v, Mask(None), None, 0.1) for _ in range(3000)]
    plain = _own(q, k, v, Mask(None), None, 0.0)
    mean, error = torch.stack(many).mean(0), torch.stack(many).std(0) / math.sqrt(len(many))
    assert ((mean - plain) / error).abs().max() < 5


def test_bf16_agrees_with_fp32() -> None:
    q, k, v = _qkv(dtype=torch.float32)
    low = [x.detach().bfloat16().requires_grad_() for x in (q, k, v)]
    mask = Mask.of(Full() & Padding() & Documents(), SEQ)
    a, b = attend(q, k, v, mask=mask), attend(low[0], low[1], low[2], mask=mask)
    assert b.dtype == torch.bfloat16
    torch.testing.assert_close(a, b.float(), atol=3e-2, rtol=3e-2)
    for x, y in zip(
        torch.autograd.grad(a.sum(), (q, k, v)), torch.autograd.grad(b.sum(), low), strict=True
    ):
        torch.testing.assert_close(x, y.float(), atol=5e-2, rtol=5e-2)


def test_keep_mask_rate_state_and_levels() -> None:
    assert keep_rate(0.1) == 1 - 6554 / 65536
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, second = draw_mask(torch.Size([1001, 333]), 0.1), draw_mask(torch.Size([1001, 333]), 0.1)
    torch.set_rng_state(state)
    assert torch.equal(first, draw_mask(torch.Size([1001, 333]), 0.1))
    assert not torch.equal(first, second)
    assert set(first.unique().tolist()) == {-1, 0}
    n = first.numel()
    assert abs(-first.double().mean() - keep_rate(0.1)) < 5 * math.sqrt(0.09 / n)
    agree = float((first == second).double().mean())
    assert abs(agree - (0.9**2 + 0.1**2)) < 5 * math.sqrt(0.15 / n)
    assert (draw_mask(torch.Size([64]), 1e-9) == -1).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_masked_selects(dtype: torch.dtype) -> None:
    x = torch.tensor([1.5, -2.0, 3.0, -4.0], dtype=dtype)
    assert apply_mask(x, torch.tensor([-1, 0, 0, -1], dtype=torch.int16)).tolist() == [
        1.5,
        0.0,
        0.0,
        -4.0,
    ]
