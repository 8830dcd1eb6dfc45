"""Scores and projections of attention against loops over heads, queries and keys; counts, costs,
and reading token by token.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.attention.patterns.causal import Causal
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.nn.cache import Cache
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.cross_attention import CrossAttention
from plmctl.nn.env import Env, Streams
from plmctl.nn.init import fan_in
from plmctl.nn.positions import NoPosition

W, H, D, B, T = 8, 2, 4, 2, 5
SCORES, PROJECTIONS = ("scaled", "dot", "general"), ("own", "shared", "none")


def made(scores: str, projections: str = "own", **settings: bool) -> Attention:
    torch.manual_seed(0)
    return (
        Attention(
            width=W, num_heads=H, dropout=0.0, scores=scores, projections=projections, **settings
        )
        .double()
        .eval()
    )


def stream(length: int = T) -> Tensor:
    return torch.randn(
        B, length, W, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )


def context(length: int = T, cache: Cache | None = None, start: int = 0) -> Env:
    seq = Seq(
        torch.zeros(B, start + length, dtype=torch.long),
        torch.full((B,), start + length),
        full=True,
    )
    places = torch.arange(start, start + length)[None]
    mask = Mask.of(Causal(), seq, k_offset=start)
    return Env({"text": BoundOp(mask, NoPosition(), places)}, cache=cache)


def compared(
    scores: str, cell: Attention | CrossAttention, head: int, q: Tensor, k: Tensor
) -> float:
    """Luong et al., 2015, sec. 3.1; Vaswani et al., 2017, eq. 1."""
    if scores == "general":
        weight = cell.score.between.weight  # type: ignore[union-attr]
        return sum(float(q[i] * weight[head * D + i, j] * k[j]) for i in range(D) for j in range(D))
    product = sum(float(q[i] * k[i]) for i in range(D))
    return product / math.sqrt(D) if scores == "scaled" else product


def mixed(
    scores: str, cell: Attention | CrossAttention, q: Tensor, k: Tensor, v: Tensor, *, causal: bool
) -> Tensor:
    """q [T, H D], k and v [S, H D] of one row -> [T, H D], in loops."""
    found = torch.zeros(len(q), H * D, dtype=torch.float64)
    for head in range(H):
        own = slice(head * D, (head + 1) * D)
        for t in range(len(q)):
            seen = range(t + 1 if causal else len(k))
            weights = [math.exp(compared(scores, cell, head, q[t, own], k[s, own])) for s in seen]
            for s, weight in zip(seen, weights, strict=True):
                found[t, own] += weight / sum(weights) * v[s, own]
    return found


@pytest.mark.parametrize("projections", PROJECTIONS)
@pytest.mark.parametrize("scores", SCORES)
@torch.no_grad()
def test_attention_is_the_loop(scores: str, projections: str) -> None:
    cell, x = made(scores, projections), stream()
    expected = []
    for row in x:
        if projections == "none":
            q = k = v = row
        else:
            maps = [
                (w, b)
                for w, b in zip(cell.qkv.weight.split(W), cell.qkv.bias.split(W), strict=True)
            ]  # type: ignore[operator, union-attr]
            parts = [row @ weight.T + bias for weight, bias in maps]
            q, k, v = parts if projections == "own" else (parts[0], parts[0], parts[1])
        expected.append(
            mixed(scores, cell, q, k, v, causal=True) @ cell.out.weight.T + cell.out.bias
        )
    torch.testing.assert_close(
        cell(Streams({"text": x}), context()), torch.stack(expected), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("scores", SCORES)
@torch.no_grad()
def test_cross_attention_is_the_loop(scores: str) -> None:
    torch.manual_seed(0)
    cell = CrossAttention(width=W, num_heads=H, dropout=0.0, scores=scores).double().eval()
    x, states = stream(), stream(3)
    env = Env({"source": BoundOp(Mask(None), NoPosition(), torch.arange(T)[None])})
    given = Streams({"text": x, "source": states})
    for row, source, found in zip(x, states, cell(given, env), strict=True):
        q = row @ cell.q.weight.T + cell.q.bias
        k, v = (
            source @ w.T + b
            for w, b in zip(cell.kv.weight.split(W), cell.kv.bias.split(W), strict=True)
        )
        expected = mixed(scores, cell, q, k, v, causal=False) @ cell.out.weight.T + cell.out.bias
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("projections", PROJECTIONS)
@pytest.mark.parametrize("scores", SCORES)
@torch.no_grad()
def test_token_by_token_equals_all_at_once(scores: str, projections: str) -> None:
    cell, x, cache = made(scores, projections), stream(), Cache.of(1)
    steps = [cell(Streams({"text": x[:, t : t + 1]}), context(1, cache, t)) for t in range(T)]
    torch.testing.assert_close(
        torch.cat(steps, 1), cell(Streams({"text": x}), context()), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize(("projections", "maps"), [("own", 4), ("shared", 3), ("none", 1)])
def test_how_many_numbers_it_learns(scores: str, projections: str, maps: int) -> None:
    count = sum(p.numel() for p in made(scores, projections).parameters())
    assert count == maps * (W * W + W) + (H * D * D if scores == "general" else 0)


def test_what_scores_and_projections_are_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"scores='generl'.*did you mean 'general'"):
        made("generl")
    with pytest.raises(ConfigError, match=r"projections='non'.*did you mean 'none'"):
        made("scaled", "non")
    with pytest.raises(ConfigError, match="head_width"):
        Attention(width=W, num_heads=H, dropout=0.0, head_width=3, projections="none")


@pytest.mark.parametrize("projections", ["own", "shared"])
def test_first_weights_that_stand_for_the_scale_make_scores_as_small(projections: str) -> None:
    """T5's rule: dot scores are then D^-1/2 of what equal columns for q and k would give."""
    torch.manual_seed(0)
    cell = Attention(
        width=256, num_heads=4, dropout=0.0, scores="dot", projections=projections, bias=False
    )
    fan_in(cell, std=1.0, generator=torch.Generator().manual_seed(0))
    x = torch.randn(1, 400, 256)
    made_by = cell.qkv(x).unflatten(-1, (-1, 4, 64))
    q, k = made_by[0, :, cell.map_of[0], 0], made_by[0, :, cell.map_of[1], 0]
    # a token with itself is another matter where q = k
    scores = (q @ k.T).detach()[~torch.eye(400, dtype=torch.bool)]
    assert float(scores.std()) == pytest.approx(1.0, rel=0.15)


def test_norms_of_queries_and_keys_do_not_warn_in_16_bits(recwarn: pytest.WarningsRecorder) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        cell = made("scaled", qk_norm=True).float()
        queries = cell.qkv(stream().float()).unflatten(-1, (-1, H, D))[:, :, :1].transpose(1, 2)
        assert queries.dtype == torch.bfloat16
        normed, _ = cell._normalize(queries, queries)
    assert not [str(w.message) for w in recwarn]
    expected = queries.float() * queries.float().pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()
    torch.testing.assert_close(normed, expected, check_dtype=False)


@pytest.mark.parametrize("scores", SCORES)
@torch.no_grad()
def test_normed_queries_and_keys_are_the_loop(scores: str) -> None:
    """Each head's q and k over its root mean square, times learned weights (Henry et al., 2020)."""
    cell, x = made(scores, qk_norm=True), stream()
    assert cell.q_norm is not None
    assert cell.k_norm is not None
    cell.q_norm.weight.uniform_(0.5, 2.0)
    cell.k_norm.weight.uniform_(0.5, 2.0)
    expected = []
    for row in x:
        q, k, v = (cell.qkv(row)[:, n * W : (n + 1) * W] for n in range(3))
        for t in range(T):
            for head in range(H):
                own = slice(head * D, (head + 1) * D)
                for vector, weight in ((q[t], cell.q_norm.weight), (k[t], cell.k_norm.weight)):
                    size = math.sqrt(sum(float(vector[own][i]) ** 2 for i in range(D)) / D + 1e-6)
                    vector[own] = vector[own] / size * weight
        mean = mixed(scores, cell, q, k, v, causal=True)
        expected.append(mean @ cell.out.weight.T + cell.out.bias)
    result = cell(Streams({"text": x}), context())
    torch.testing.assert_close(result, torch.stack(expected), rtol=1e-10, atol=1e-10)
    cache = Cache.of(1)
    steps = [cell(Streams({"text": x[:, t : t + 1]}), context(1, cache, t)) for t in range(T)]
    torch.testing.assert_close(torch.cat(steps, 1), result, rtol=1e-12, atol=1e-12)
