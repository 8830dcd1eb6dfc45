"""Weights by alpha-entmax (Correia et al., 2019): the equation that defines them, the package
`entmax` with all gradients, loops over queries, cells and kernels, masks, costs of mistakes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model
from plmctl.attention.kernels.banded import Banded
from plmctl.attention.kernels.dense import Dense, Mask
from plmctl.attention.op import AttentionOp, BoundOp
from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.window import Window
from plmctl.config.compose import compose
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.cross_attention import CrossAttention
from plmctl.nn.cells.local_attention import LocalAttention
from plmctl.nn.cells.relative_attention import RelativeAttention
from plmctl.nn.cells.shaw_attention import ShawAttention
from plmctl.nn.entmax import Entmax
from plmctl.nn.env import Env, Streams
from plmctl.nn.positions import ALiBi, NoPosition
from plmctl.nn.recorder import Recorder
from plmctl.nn.relations import RelativeOp, make_relations
from plmctl.runs.contract.contract import check_contract
from plmctl.runs.contract.stand_in import TINY

B, H, T, D = 2, 3, 6, 4
W = H * D
ALPHAS = pytest.mark.parametrize("alpha", [1.05, 1.3, 1.5, 1.8, 2.0, 2.7])


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(*shape, generator=generator, dtype=torch.float64)


def learned(*alphas: float) -> Entmax:
    weights = Entmax(num_heads=len(alphas), learned=True).double()
    assert weights.logit is not None
    shares = torch.tensor(alphas, dtype=torch.float64) - 1
    weights.logit.data = shares.logit()
    return weights


def solve(scores: Tensor, alpha: float) -> Tensor:
    """One row in fp64: tau by the sum alone, with the formula as the paper writes it."""
    x = [(alpha - 1) * s for s in scores.tolist()]
    low, high = max(x) - 1, max(x)
    for _ in range(200):
        tau = (low + high) / 2
        total = sum(max(0.0, value - tau) ** (1 / (alpha - 1)) for value in x)
        low, high = (tau, high) if total > 1 else (low, tau)
    return torch.tensor(
        [max(0.0, value - low) ** (1 / (alpha - 1)) for value in x], dtype=torch.float64
    )


@ALPHAS
def test_the_equation_row_by_row(alpha: float) -> None:
    scores = draw(B, H, T, 9)
    p = Entmax(num_heads=H, alpha=alpha)(scores)
    expected = torch.stack([solve(row, alpha) for row in scores.view(-1, 9)]).view_as(p)
    torch.testing.assert_close(p, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(p.sum(-1), torch.ones(B, H, T, dtype=p.dtype))
    if alpha >= 1.5:
        assert (p == 0).any()


def test_near_one_it_is_softmax_and_larger_alphas_have_more_zeros() -> None:
    scores = draw(B, H, T, 20)
    near = Entmax(num_heads=H, alpha=1.0005)(scores)
    torch.testing.assert_close(near, scores.softmax(-1), rtol=0, atol=1e-3)
    zeros = [
        int((Entmax(num_heads=H, alpha=alpha)(scores) == 0).sum())
        for alpha in (1.2, 1.5, 1.8, 2.0, 2.5)
    ]
    assert zeros == sorted(zeros)
    assert zeros[0] < zeros[-1]


def test_the_package_entmax_with_gradients() -> None:
    theirs = pytest.importorskip("entmax")
    alphas = (1.1, 1.5, 1.9)
    weights, weigh = learned(*alphas), draw(B, H, T, 9, seed=1)
    results = []
    for ours in (True, False):
        scores = draw(B, H, T, 9).requires_grad_()
        if ours:
            p, alpha = weights(scores), weights.logit
        else:
            logit = weights.logit.detach().clone().requires_grad_()  # type: ignore[union-attr]
            alpha = (1 + logit.sigmoid()).view(1, H, 1, 1)
            p, alpha = theirs.entmax_bisect(scores, alpha=alpha, dim=-1, n_iter=100), logit
        (p * weigh).sum().backward()
        results.append((p, scores.grad, alpha.grad))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)
    for alpha, function in ((1.5, theirs.entmax15), (2.0, theirs.sparsemax)):
        results = []
        for compute in (Entmax(num_heads=H, alpha=alpha), partial(function, dim=-1)):
            scores = draw(B, H, T, 9).requires_grad_()
            p = compute(scores)
            (p * weigh).sum().backward()
            results.append((p, scores.grad))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_gradients_are_those_of_finite_differences() -> None:
    weights = learned(1.2, 1.5, 1.7)

    def compute(scores: Tensor, logit: Tensor) -> Tensor:
        return torch.func.functional_call(weights, {"logit": logit}, (scores,))

    logit: Any = weights.logit
    given = (draw(1, H, 2, 5).requires_grad_(), logit.detach().requires_grad_())
    assert torch.autograd.gradcheck(compute, given, atol=1e-5)
    for alpha in (1.5, 2.0):
        assert torch.autograd.gradcheck(Entmax(num_heads=H, alpha=alpha), given[:1], atol=1e-5)


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0])
def test_what_may_not_be_seen_has_no_weight(alpha: float) -> None:
    scores = draw(1, H, 3, 5).requires_grad_()
    hidden = torch.tensor([[0, 0, 1, 0, 1], [1, 1, 1, 1, 1], [1, 1, 0, 1, 1]]).bool()
    p = Entmax(num_heads=H, alpha=alpha)(scores.masked_fill(hidden, -torch.inf))
    assert not p[..., hidden].any()
    assert not p[:, :, 1].any()
    assert (p[:, :, 2, 2] == 1).all()
    seen = Entmax(num_heads=H, alpha=alpha)(scores[:, :, 0, [0, 1, 3]])
    torch.testing.assert_close(p[:, :, 0, [0, 1, 3]], seen, rtol=1e-9, atol=1e-9)
    p.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert not scores.grad[..., hidden].any()


def test_in_bf16_it_is_computed_in_fp32() -> None:
    scores = draw(B, H, T, 9)
    p = Entmax(num_heads=H)(scores.bfloat16())
    assert p.dtype == torch.bfloat16
    exact = Entmax(num_heads=H)(scores.bfloat16().float())
    torch.testing.assert_close(p.float(), exact, rtol=1e-2, atol=1e-3)
    long = Entmax(num_heads=1, alpha=1.3)(draw(1, 1, 2, 4096).float())
    torch.testing.assert_close(long.sum(-1), torch.ones(1, 1, 2))


def make_env(kernel: Any = None, pattern: Pattern | None = None, **more: Any) -> Env:
    seq = Seq(torch.zeros(B, T, dtype=torch.long), torch.full((B,), T), full=True)
    op = AttentionOp(pattern or Causal(), ALiBi(num_heads=H), kernel or Dense())
    return Env({"text": op.bind(seq, positions=torch.arange(T)[None])}, seq=seq, **more)


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0])
def test_attention_is_a_loop_over_queries(alpha: float) -> None:
    torch.manual_seed(0)
    weights = partial(Entmax, alpha=alpha)
    cell = Attention(width=W, num_heads=H, dropout=0.0, weights=weights).double()
    x = draw(B, T, W)
    y = cell(Streams({"text": x}), make_env())
    q, k, v = (part.view(B, T, H, D) for part in cell.qkv(x).chunk(3, -1))
    expected = torch.zeros(B, T, H, D, dtype=x.dtype)
    for b in range(B):
        for h in range(H):
            for i in range(T):
                scores = torch.stack(
                    [
                        q[b, i, h] @ k[b, j, h] / D**0.5 - 2 ** (-8 * (h + 1) / H) * (i - j)
                        for j in range(i + 1)
                    ]
                )
                expected[b, i, h] = solve(scores, alpha) @ v[b, : i + 1, h]
    torch.testing.assert_close(y, cell.out(expected.flatten(2)), rtol=1e-6, atol=1e-7)
    recorder = Recorder.of(frozenset({"attention", "scores"}))
    assert recorder is not None
    cell(Streams({"text": x}), make_env(recorder=recorder))
    (maps,), (scores,) = recorder.recorded["attention"], recorder.recorded["scores"]
    assert scores.isfinite().all()
    torch.testing.assert_close(
        (maps @ v.transpose(1, 2)).transpose(1, 2), expected, rtol=1e-6, atol=1e-7
    )


def test_it_is_the_same_with_every_kernel() -> None:
    torch.manual_seed(0)
    cell = Attention(width=W, num_heads=H, dropout=0.0, weights=Entmax).double()
    pattern, results = Causal() & Window(reach=2), []
    for kernel in (Dense(), Banded(block=2)):
        x = draw(B, T, W).requires_grad_()
        y = cell(Streams({"text": x}), make_env(kernel, pattern))
        cell.zero_grad()
        y.square().sum().backward()
        results.append([y, x.grad, *(p.grad for p in cell.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "kind", [Attention, RelativeAttention, ShawAttention, LocalAttention, CrossAttention]
)
def test_any_attention_takes_them(kind: Any) -> None:
    """alpha near 1 gives what softmax gives; a large one another result, and alpha learns."""
    settings = {"width": W, "num_heads": H, "dropout": 0.0}
    settings |= {"chunk": 3, "causal": True} if kind is LocalAttention else {}
    x = draw(B, T, W)
    env = make_env()
    plan, places = Mask.of(Causal(), env.seq), torch.arange(T)[None]  # type: ignore[arg-type]
    if kind is RelativeAttention:
        relations = make_relations(width=W, first=0, rows=T, like=x)
        env = Env(
            {"text": RelativeOp(plan, NoPosition(), places, relations=relations)}, seq=env.seq
        )
    op = BoundOp(Mask(None), NoPosition(), places)
    env = Env({**env.ops, "source": op}, seq=env.seq)
    streams = Streams({"text": x, "source": draw(B, T, W, seed=3)})
    results = []
    for weights in (None, partial(Entmax, alpha=1.002, learned=True), partial(Entmax, alpha=2.0)):
        torch.manual_seed(0)
        cell = kind(**settings, weights=weights).double()
        y = cell(streams, env)
        results.append(y)
        if cell.weigh is not None and cell.weigh.logit is not None:
            y.square().sum().backward()
            assert (cell.weigh.logit.grad != 0).all()
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-2)
    assert not results[0].allclose(results[2], rtol=0, atol=5e-2)


LEARNED = "{_target_:plmctl.nn.entmax.Entmax,alpha:1.3,learned:true}"


def test_a_setting_of_any_recipe() -> None:
    """All attention of a translator, each with its own alphas, which begin as told."""
    words = ["data.path=a", "data.target_path=b", "size=tiny"]
    words += [f"model.decoder.stack.cells.a.weights={LEARNED}"]
    cfg = compose("pretrain", "transformer", words)
    model = build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0)
    parts = [part for part in model.modules() if isinstance(part, Entmax)]
    assert len(parts) == 2 + 2 + 2  # encoder, decoder, from one to the other
    for part in parts:
        torch.testing.assert_close(part.alpha, torch.full((2,), 1.3))
    assert len({id(part.logit) for part in parts}) == len(parts)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("alpha:1", r"alpha=1.*more than 1; 1 is softmax"),
        ("alpha:0.5", r"alpha=0\.5.*more than 1"),
        ("alpha:2.0,learned:true", r"alpha=2\.0.*less than 2"),
    ],
)
def test_bad_alphas_are_answered_at_once(words: str, message: str) -> None:
    node = f"model.stack.cells.a.weights={{_target_:plmctl.nn.entmax.Entmax,{words}}}"
    with pytest.raises(ConfigError, match=message):
        check_contract(compose("pretrain", "bert", ["data.path=a", "size=tiny", node]))
