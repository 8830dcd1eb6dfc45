"""Cells on some columns of the stream: long-short range attention (Wu et al., 2020, sec. 4)."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from plmctl.artifacts.assemble import build_model, without_weights
from plmctl.artifacts.cost import cost
from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.attention.patterns.base import Full
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError
from plmctl.models.remarks import remark_on_model
from plmctl.nn.cache import Cache
from plmctl.nn.cells.lightweight import DynamicConvolution
from plmctl.nn.columns import describe_rounds, find_columns
from plmctl.nn.env import Env, Streams
from plmctl.nn.positions import NoPosition
from plmctl.nn.residual import PostNorm, PreNorm, SandwichNorm
from plmctl.nn.stack import Stack
from tests.nn.stacks import HEADS, T, W, make_env, make_input, make_stack, run_stack

HALVES = {"a": [0, 0.5], "d": [0.5, 1]}
DYNAMIC = partial(DynamicConvolution, width=W, num_heads=HEADS, kernel=3, causal=True, gated=True)


def make_halves(layout: str = "a|df*2", **settings) -> Stack:
    settings = {"columns": HALVES, "width": W, "more": {"d": DYNAMIC}, **settings}
    return make_stack(layout, **settings)


@pytest.mark.parametrize("kind", [PreNorm, PostNorm])
def test_branches_are_concatenated(kind: type) -> None:
    """x + [attention(first half of norm(x)); convolution(second half)], then the feed-forward."""
    stack, x = make_halves(residual=kind), make_input()
    env, state = make_env(), x
    for layer in range(2):
        a, d, f = (stack.blocks[letter][layer] for letter in "adf")
        read = a.norm_in(state)
        halves = [
            cell(Streams({"text": half}), env)
            for cell, half in zip((a.cell, d.cell), read.chunk(2, -1), strict=True)
        ]
        state = a.norm_sum(state + torch.cat(halves, -1))
        state = f.norm_sum(state + f.cell(Streams({"text": f.norm_in(state)}), env))
    result, _ = run_stack(stack, x, env)
    torch.testing.assert_close(result, stack.final_norm(state), rtol=0, atol=1e-12)


def test_attention_of_half_the_columns_is_torchs() -> None:
    stack, x = make_halves("a|d"), make_input()
    block = stack.blocks["a"][0]
    theirs = torch.nn.MultiheadAttention(W // 2, HEADS, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(block.cell.qkv.weight)
        theirs.in_proj_bias.copy_(block.cell.qkv.bias)
        theirs.out_proj.load_state_dict(block.cell.out.state_dict())
    half = block.norm_in(x)[..., : W // 2]
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    expected, _ = theirs(half, half, half, attn_mask=later)
    change = block.add(x, Streams({"text": block.norm_in(x)}), make_env()) - x
    torch.testing.assert_close(change[..., : W // 2], expected, rtol=0, atol=1e-12)
    assert not change[..., W // 2 :].any()


def test_parameters_by_the_formula() -> None:
    """Attention of W/2: 4 maps; convolution: W/2 -> W, W/2 -> H K and W/2 -> W/2."""
    half, stack = W // 2, make_halves("a|d")
    attention = 4 * half * half + 4 * half
    convolution = half * W + W + half * HEADS * 3 + half * half + half
    cells = [stack.blocks[letter][0].cell for letter in "ad"]
    counts = [sum(p.numel() for p in cell.parameters()) for cell in cells]
    assert counts == [attention, convolution]


@torch.no_grad()
def test_token_by_token_equals_all_at_once() -> None:
    stack, x = make_halves(), make_input()
    env = make_env()
    whole, _ = run_stack(stack, x, env)
    cache = Cache.of(len(stack.steps))
    for t in range(T):
        # the last token sees all before it
        now = BoundOp(Mask(None), NoPosition(), torch.tensor([[t]]), torch.arange(t + 1)[None])
        token = Env({"text": now}, seq=make_env(1).seq, cache=cache)
        step, _ = run_stack(stack, x[:, t : t + 1], token)
        torch.testing.assert_close(step[:, 0], whole[:, t], rtol=0, atol=1e-12)


def test_kernels_differ_by_layer_and_every_weight_learns() -> None:
    stack = make_halves(by_layer={"d": {"kernel": [3, 5]}})
    assert [block.cell.window.kernel for block in stack.blocks["d"]] == [3, 5]
    run_stack(stack, make_input(), make_env())[0].square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in stack.parameters())
    assert stack.records


def test_reversible_stacks_give_the_same_gradients() -> None:
    """As a chain of the same rounds, each change once."""
    stack, x = make_halves(reversible=True), make_input()
    result, _ = run_stack(stack, x, make_env())
    result.square().sum().backward()
    gradient, start = x.grad, x.detach().requires_grad_()
    y = z = start
    for layer in range(2):
        for letters in ("ad", "f"):
            block = stack.blocks[letters[0]][layer]
            read = Streams({"text": block.norm_in(z)})
            change = sum(stack.blocks[s][layer].change(read, make_env()) for s in letters)
            y, z = z, y + change
    torch.testing.assert_close(stack.final_norm((y + z) / 2), result, rtol=0, atol=1e-10)
    stack.final_norm((y + z) / 2).square().sum().backward()
    torch.testing.assert_close(start.grad, gradient, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"x": [0, 0.5]}, "columns='x': a cell of the layout: a, d, f"),
        ({"a": [0.5, 0.5]}, r"columns\.a=\[0\.5, 0\.5\]: two shares of the columns"),
        ({"a": [0, 1.5]}, "two shares of the columns"),
        ({"a": 0.5}, "two shares of the columns"),
        ({"a": [0, 0.3]}, r"columns\.a=\[0, 0\.3\]: shares of size\.width=8 in whole columns"),
    ],
)
def test_wrong_columns(columns, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_halves(columns=columns)


def test_cells_that_need_all_columns() -> None:
    with pytest.raises(ConfigError, match=r"columns\.c=\[0, 4\]: cells that read the text alone"):
        make_halves("c|df", columns={"c": [0, 0.5]})
    with pytest.raises(ConfigError, match="a norm of each cell's output needs all columns"):
        make_halves(residual=SandwichNorm)


def test_the_command_line_takes_it() -> None:
    words = ["model.stack.layout=a|df*2", "model.stack.columns={a:[0,0.5],d:[0.5,1]}"]
    cfg = compose("pretrain", "gpt2", [*words, "size=tiny", "data.path=x"])
    lite = build_model(cfg, vocab_size=64)
    plain = build_model(compose("pretrain", "gpt2", ["size=tiny", "data.path=x"]), vocab_size=64)
    macs = [cost(model, length=64, predicted={}).macs_per_token for model in (lite, plain)]
    assert macs[0]["attention"] == macs[1]["attention"] / 4
    assert macs[0]["attention scores"] == macs[1]["attention scores"] / 2
    assert macs[0]["convolution"] > 0


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (HALVES, ""),
        ({"a": [0, 0.75], "d": [0.5, 1]}, "of a|d: 8 to 11 are of several, whose results are add"),
        ({"a": [0, 0.25], "d": [0.5, 1]}, "of a|d: 4 to 7 are of none, and stay as they are"),
        ({"a": [0, 0.25]}, "of a|d: 0 to 3 are of several"),
        ({"f": [0, 0.25]}, ""),  # alone, it may leave out what it wants
    ],
)
def test_overlaps_and_gaps_of_parallel_cells_are_said(
    columns: dict[str, list[float]], said: str
) -> None:
    letters = {"a", "d", "f"}
    own = find_columns(columns, letters, 16)
    remark = describe_rounds(own, [["a", "d"], ["f"], ["a", "d"]], 16)
    assert remark.startswith(said)
    assert bool(remark) == bool(said)


def test_a_run_says_it() -> None:
    words = ["size=tiny", "model.encoder.stack.columns.a=[0,0.25]"]
    spec = compose("pretrain", "lite_transformer", words)
    with without_weights():
        backbone = build_model(spec, vocab_size=40).backbone
    assert "are of none" in remark_on_model(backbone, Full(), 32)["columns"]
