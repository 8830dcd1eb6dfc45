"""Dropout, positions, norms slots, cells and initial weights, each against its formula."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from plmctl.artifacts.assemble import build_model, without_weights
from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.config.compose import compose
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.models.remarks import remark_on_model
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.base import Cell, CellFacts
from plmctl.nn.cells.feedforward import FeedForward, find_activation
from plmctl.nn.cells.glu import GLU
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams
from plmctl.nn.init import normal, scaled_residual, truncated_normal, zero_residual
from plmctl.nn.norm import batch_norm, layer_norm, rms_norm
from plmctl.nn.positions import ALiBi, Learned, NoPosition, Rotary, Sinusoidal
from plmctl.nn.residual import Block, PostNorm, PreNorm, SandwichNorm
from plmctl.nn.stack import Stack

W = 8
PLACES = torch.arange(5)[None]
ENV = Env({"text": BoundOp(Mask(None), NoPosition(), PLACES)})
NORM = partial(layer_norm, width=W, eps=1e-5)


class _Double(Cell):
    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(W, W)

    def forward(self, streams: Streams, env: Env) -> torch.Tensor:
        return 2 * streams["text"]


def _text(x: torch.Tensor) -> Streams:
    return Streams({"text": x})


def _x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_drops_scales_and_repeats(dtype: torch.dtype) -> None:
    drop, x = Dropout(rate=0.25), torch.ones(200, 301, dtype=dtype, requires_grad=True)
    torch.manual_seed(0)
    y = drop(x)
    torch.manual_seed(0)
    z = drop.add(torch.zeros_like(x), x)
    assert torch.equal(y, z)
    kept = y != 0
    assert abs(float(kept.double().mean()) - 0.75) < 5 * math.sqrt(0.1875 / x.numel())
    assert torch.allclose(y[kept].double(), torch.tensor(4 / 3, dtype=torch.float64), rtol=5e-3)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], y)
    assert torch.equal(drop.eval()(x), x)


def test_residual_dropout_keeps_the_stream_in_fp32() -> None:
    x, y = _x(2, 5, W).requires_grad_(), _x(2, 5, W).bfloat16().requires_grad_()
    out = Dropout(rate=0.5).add(x, y)
    gx, gy = torch.autograd.grad(out.sum(), (x, y))
    assert (out.dtype, gx.dtype, gy.dtype) == (torch.float32, torch.float32, torch.bfloat16)
    assert (gx == 1).all()
    assert set(gy.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2])
def test_impossible_dropout_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="0 <= dropout < 1"):
        Dropout(rate=rate)


def test_norm_slots() -> None:
    x, norm = _x(2, 5, W), NORM()
    post, pre, sandwich = (
        kind(norm=NORM, dropout=0.0) for kind in (PostNorm, PreNorm, SandwichNorm)
    )
    assert torch.allclose(post.block(_Double())(_text(x), ENV)["text"], norm(3 * x))
    assert torch.allclose(pre.block(_Double())(_text(x), ENV)["text"], x + 2 * norm(x))
    assert torch.allclose(sandwich.block(_Double())(_text(x), ENV)["text"], x + norm(2 * norm(x)))
    assert isinstance(post.final(), nn.Identity)
    assert isinstance(pre.final(), nn.LayerNorm)
    assert isinstance(PreNorm(norm=NORM, dropout=0.0, final_norm=False).final(), nn.Identity)


def test_stack_records_layers_and_shares_weights() -> None:
    def build(layout: str) -> Stack:
        torch.manual_seed(0)
        return Stack(layout=layout, cells={"f": _Double}, residual=PostNorm(norm=NORM, dropout=0.0))

    x = _x(2, 5, W)
    made, recorded = build("f*3")(_text(x), ENV, record=True)
    last = made["text"]
    assert len(recorded) == 4
    assert recorded[0] is x
    assert recorded[-1] is last
    own, shared = build("f*1"), build("f@3")
    assert sum(p.numel() for p in own.parameters()) == sum(p.numel() for p in shared.parameters())
    y = x
    for _ in range(3):
        y = own(_text(y), ENV)[0]["text"]
    assert torch.equal(shared(_text(x), ENV)[0]["text"], y)
    with pytest.raises(ConfigError, match="'z' is none of the cells: f"):
        build("z*2")


def test_feed_forward_cells_are_their_formulas() -> None:
    x = _x(2, 5, W)
    f = FeedForward(width=W, inner_width=12, activation="gelu_tanh")
    u = f.up(x)
    inner = 0.5 * u * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
    assert torch.allclose(f(_text(x), ENV), f.down(inner), atol=1e-6)
    g = GLU(width=W, inner_width=12, activation="silu")
    gate = g.gate(x)
    assert torch.allclose(g(_text(x), ENV), g.down(gate * torch.sigmoid(gate) * g.up(x)), atol=1e-6)
    squared = FeedForward(width=W, inner_width=12, activation="square_relu")
    inner = squared.up(x)
    expected = squared.down(torch.where(inner > 0, inner * inner, 0.0))
    assert torch.allclose(squared(_text(x), ENV), expected, atol=1e-6)
    with pytest.raises(ConfigError, match="did you mean 'gelu'"):
        find_activation("gellu")


def test_attention_is_the_textbook_formula() -> None:
    torch.manual_seed(0)
    cell, x = (
        Attention(width=W, num_heads=2, dropout=0.0).double(),
        _x(2, 5, W, dtype=torch.float64),
    )
    q, k, v = (
        x @ cell.qkv.weight[i * W : (i + 1) * W].T + cell.qkv.bias[i * W : (i + 1) * W]
        for i in range(3)
    )
    heads = [
        torch.softmax(q[..., s] @ k[..., s].transpose(1, 2) / math.sqrt(W / 2), -1) @ v[..., s]
        for s in (slice(0, W // 2), slice(W // 2, W))
    ]
    expected = torch.cat(heads, -1) @ cell.out.weight.T + cell.out.bias
    torch.testing.assert_close(cell(_text(x), ENV), expected, atol=1e-12, rtol=1e-12)
    with pytest.raises(ConfigError, match="must divide"):
        Attention(width=W, num_heads=3, dropout=0.0)


def test_positions() -> None:
    x = torch.zeros(1, 5, W)
    y = Sinusoidal(width=W).embed(x, PLACES)
    assert torch.allclose(y[0, 3, 1], torch.sin(torch.tensor(3 * 10000 ** (-2 / W))))
    assert torch.allclose(y[0, 3, W // 2], torch.cos(torch.tensor(3.0)))
    learned = Learned(width=W, max_length=4)
    assert torch.equal(
        learned.embed(x[:, :2], torch.tensor([[1, 3]])), learned.table.weight[None, [1, 3]]
    )
    with pytest.raises(ConfigError, match="at most 4"):
        learned.embed(x, PLACES)
    assert NoPosition().bias(x, PLACES, PLACES) is None


def test_rotary_scores_depend_on_distance_alone() -> None:
    rotary, q, k = Rotary(), _x(1, 1, 1, W), _x(1, 1, 1, W).roll(1, -1)

    def score(i: int, j: int) -> torch.Tensor:
        a, b = rotary.rotate(q, k, torch.tensor([[i]]), torch.tensor([[j]]))
        return (a * b).sum()

    assert torch.allclose(score(3, 1), score(12, 10), atol=1e-5)
    assert not torch.allclose(score(3, 1), score(3, 2), atol=1e-3)
    assert torch.allclose(score(7, 7), (q * k).sum(), atol=1e-5)


def test_alibi_slopes() -> None:
    bias = ALiBi(num_heads=8).bias(torch.zeros(1, 8, 5, 4), PLACES, PLACES)
    assert bias is not None
    assert bias.shape == (1, 8, 5, 5)
    assert bias[0, 0, 4, 1] == -3 / 2
    assert bias[0, 7, 4, 1] == -3 / 256


def test_rms_norm() -> None:
    x = _x(2, W)
    assert torch.allclose(
        rms_norm(width=W, eps=1e-6)(x),
        x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt(),
        atol=1e-6,
    )


def test_batch_norm_of_real_tokens_is_that_of_torch() -> None:
    """Statistics, gradients and running means are those of the rows without padding."""
    own, theirs = batch_norm(width=W, eps=1e-5), torch.nn.BatchNorm1d(W)
    real = torch.tensor([[True, True, False], [True, False, False], [True, True, True]])
    for _ in range(2):
        x = _x(3, 3, W).requires_grad_()
        weights = torch.randn(6, W)
        (found,) = torch.autograd.grad((own(x, real)[real] * weights).sum(), x)
        (wanted,) = torch.autograd.grad((theirs(x[real]) * weights).sum(), x)
        torch.testing.assert_close(own(x, real)[real], theirs(x[real]))
        torch.testing.assert_close(found, wanted)
        assert not found[~real].any()
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(own, name), getattr(theirs, name))
    own, theirs = own.eval(), theirs.eval()
    torch.testing.assert_close(own(x, real), theirs(x.flatten(0, 1)).view_as(x))


@pytest.mark.parametrize(("model", "joins"), [("bert", False), ("gpt", True)])
def test_a_causal_model_says_that_norms_of_a_batch_join_later_tokens(
    model: str, joins: bool
) -> None:
    words = ["size=tiny", "model.stack.residual.norm=batch"]
    spec = compose("pretrain", model, words)
    with without_weights():
        backbone = build_model(spec, vocab_size=40).backbone
    remarks = remark_on_model(backbone, backbone.pattern, 32)
    assert ("norm" in remarks) == joins


@pytest.mark.parametrize("residual", [PreNorm, PostNorm, SandwichNorm])
def test_padding_has_no_part_in_the_norms_of_a_batch(residual: type) -> None:
    """What stands at padding changes no state of a real token."""
    torch.manual_seed(0)
    norm = partial(batch_norm, width=W, eps=1e-5)
    cell = partial(FeedForward, width=W, inner_width=4, activation="gelu")
    stack = Stack(layout="f*2", cells={"f": cell}, residual=residual(norm=norm, dropout=0.0))
    seq = Seq(torch.zeros(2, 3, dtype=torch.long), torch.tensor([3, 1]))
    env = replace(ENV, seq=seq)
    x = _x(2, 3, W)
    one, other = (
        stack(Streams({"text": torch.where(seq.real[..., None], x, fill)}), env)[0]["text"]
        for fill in (0.0, 9.0)
    )
    assert torch.equal(one[seq.real], other[seq.real])
    x[1, 0] += 1
    assert not torch.equal(one[0], stack(Streams({"text": x}), env)[0]["text"][0])


@pytest.mark.parametrize("rule", [normal, truncated_normal, scaled_residual, zero_residual])
def test_initial_weights_follow_the_seed_and_the_rule(rule: object) -> None:
    def build() -> Stack:
        width = 64
        norm = partial(layer_norm, width=width, eps=1e-5)
        cells = {"f": partial(FeedForward, width=width, inner_width=4 * width, activation="gelu")}
        stack = Stack(layout="f*4", cells=cells, residual=PreNorm(norm=norm, dropout=0.0))
        rule(stack, std=0.02, generator=torch.Generator().manual_seed(7))  # type: ignore[operator]
        return stack

    a, b = build(), build()
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    cell = a.blocks["f"][0].cell.requires_grad_(False)  # type: ignore[index]
    std = {truncated_normal: 0.02 * 0.8796}.get(rule, 0.02)  # sd of a normal cut at 2 sd: 0.8796
    assert float(cell.up.weight.std()) == pytest.approx(std, rel=0.02)
    of_output = {scaled_residual: 0.01, zero_residual: 0.0}.get(rule, std)
    assert float(cell.down.weight.std()) == pytest.approx(of_output, rel=0.02)
    assert rule is not truncated_normal or float(cell.up.weight.abs().max()) <= 0.04
    assert not cell.up.bias.any()
    assert (a.final_norm.weight == 1).all()


class _Ahead(_Double):
    ahead, computes = True, "mixing"


def test_facts_that_a_cell_states_one_by_one_are_its_facts() -> None:
    assert (_Ahead.facts.ahead, _Ahead.facts.computes) == (True, "mixing")
    assert not _Ahead.facts.own_offsets.is_empty()
    assert _Double.facts == CellFacts()


def test_facts_beside_the_facts_of_a_built_cell_are_refused() -> None:
    cell = _Double()
    cell.ahead = True  # nothing would read it
    with pytest.raises(
        TypeError, match=r"_Double states ahead besides facts: self\.facts = replace"
    ):
        Block(cell=cell)
