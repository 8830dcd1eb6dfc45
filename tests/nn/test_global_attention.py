"""Global tokens with projections of their own: the paper's formula as loops, `transformers` with
gradients, any kernel, a cache, recorded maps, first weights.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.attention.kernels.banded import Banded
from plmctl.attention.kernels.base import Kernel
from plmctl.attention.kernels.dense import Dense
from plmctl.attention.op import AttentionOp
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.global_tokens import Global
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.window import Window
from plmctl.core.batch import Seq
from plmctl.core.errors import UsageError
from plmctl.nn.cache import Cache
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.base import RowSize
from plmctl.nn.cells.global_attention import GlobalAttention
from plmctl.nn.env import Env, Streams
from plmctl.nn.init import fan_in, normal
from plmctl.nn.peft.base import attach
from plmctl.nn.peft.lora import LowRankChange
from plmctl.nn.positions import NoPosition, Rotary
from plmctl.nn.recorder import Recorder

W, HEADS, D, REACH, LENGTH = 12, 3, 4, 2, 16
REAL = torch.ones(3, LENGTH, dtype=torch.bool)
REAL[1, 11:] = False
# in the middle and at the end, as many as differ from row to row, none in the last
MARKED = torch.zeros(3, LENGTH, dtype=torch.long)
MARKED[0, [0, 5, 15]], MARKED[1, [7]] = 1, 1
KERNELS = pytest.mark.parametrize("kernel", [Dense(), Banded(block=4), Banded(block=5)])
LONGFORMER = Window(reach=REACH) | Global(tokens=1)


def make(**settings: Any) -> GlobalAttention:
    torch.manual_seed(0)
    cell = GlobalAttention(width=W, num_heads=HEADS, dropout=0.0, **settings)
    return cell.double().eval()


def stream() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(3, LENGTH, W, generator=generator, dtype=torch.float64)


def make_seq(**tracks: Tensor) -> Seq:
    return Seq(torch.zeros(3, LENGTH, dtype=torch.long), REAL.sum(1), tracks, full=False)


def make_env(seq: Seq, kernel: Kernel, position: Any = None, recorder: Any = None) -> Env:
    pattern = LONGFORMER & Padding() & Documents()
    op = AttentionOp(pattern, position or NoPosition(), kernel)
    positions = torch.arange(LENGTH)[None]
    return Env({"text": op.bind(seq, positions=positions)}, seq=seq, recorder=recorder)


def by_loops(cell: GlobalAttention, x: Tensor, marked: Tensor, real: Tensor) -> Tensor:
    """One row [T, W]: section 3.1, token by token and head by head."""
    q, k, v = cell.qkv(x).unflatten(-1, (3, HEADS, D)).unbind(1)
    far_q = cell.global_maps.q(x).unflatten(-1, (HEADS, D))
    far_k, far_v = cell.global_maps.kv(x).unflatten(-1, (2, HEADS, D)).unbind(1)
    y = torch.zeros(len(x), HEADS, D, dtype=x.dtype)
    for i in range(len(x)):
        for h in range(HEADS):
            if marked[i]:
                seen = [j for j in range(len(x)) if real[j]]
                query, keys, values = far_q[i, h], far_k[seen, h], far_v[seen, h]
            else:
                near = [j for j in range(len(x)) if abs(i - j) <= REACH or marked[j]]
                seen = [j for j in near if real[j]]
                query, keys, values = q[i, h], k[seen, h], v[seen, h]
            y[i, h] = (keys @ query * D**-0.5).softmax(0) @ values
    return cell.out(y.flatten(1))


@KERNELS
def test_the_formula(kernel: Kernel) -> None:
    cell, x = make(), stream()
    y = cell(Streams({"text": x}), make_env(make_seq(**{"global": MARKED}), kernel))
    for row in range(3):
        wanted = by_loops(cell, x[row], MARKED[row], REAL[row])
        torch.testing.assert_close(y[row][REAL[row]], wanted[REAL[row]], rtol=1e-10, atol=1e-10)


@KERNELS
def test_transformers(kernel: Kernel) -> None:
    """States and gradients of input and all weights, with padding and several globals in a row; in
    fp32, since theirs gives NaN in float64 where a row has fewer of them than another.
    """
    transformers = pytest.importorskip("transformers")
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    config = transformers.LongformerConfig(
        hidden_size=W,
        num_attention_heads=HEADS,
        attention_window=[2 * REACH],
        attention_probs_dropout_prob=0.0,
    )
    theirs = LongformerSelfAttention(config, layer_id=0).eval()
    cell, names = make().float(), ["query", "key", "value"]
    named: dict[str, Tensor] = dict(theirs.named_parameters())
    with torch.no_grad():
        cell.out.weight.copy_(torch.eye(W))
        cell.out.bias.zero_()
        for part in ("weight", "bias"):
            ours = cell.qkv.get_parameter(part), cell.global_maps.q.get_parameter(part)
            ours[0].copy_(torch.cat([named[f"{name}.{part}"] for name in names]))
            ours[1].copy_(named[f"query_global.{part}"])
            far = [named[f"{name}_global.{part}"] for name in names[1:]]
            cell.global_maps.kv.get_parameter(part).copy_(torch.cat(far))
    x = stream().float().requires_grad_()
    y = cell(Streams({"text": x}), make_env(make_seq(**{"global": MARKED}), kernel))
    mask = torch.where(REAL, MARKED * 10000.0, -10000.0)
    wanted = theirs(
        x,
        attention_mask=mask,
        is_index_masked=mask < 0,
        is_index_global_attn=mask > 0,
        is_global_attn=True,
    )[0]
    torch.testing.assert_close(y[REAL], wanted[REAL], rtol=1e-5, atol=1e-5)
    loss = torch.randn(y.shape) * REAL[..., None]
    maps = cell.global_maps
    weights = [x, cell.qkv.get_parameter("weight"), maps.q.weight, maps.kv.weight, maps.kv.bias]
    grads = torch.autograd.grad((y * loss).sum(), weights)
    others = [named[f"{name}{end}.weight"] for end in ("", "_global") for name in names]
    others += [named["key_global.bias"], named["value_global.bias"]]
    theirs_of = torch.autograd.grad((wanted * loss).sum(), [x, *others])
    joined = [theirs_of[0], torch.cat(theirs_of[1:4]), theirs_of[4], torch.cat(theirs_of[5:7])]
    joined.append(torch.cat(theirs_of[7:]))
    torch.testing.assert_close(list(grads), joined, rtol=1e-5, atol=1e-5)


def test_the_first_tokens_of_every_document_without_a_track() -> None:
    cell, x = make(), stream()
    document = (torch.arange(LENGTH) >= 6).long().expand(3, -1)
    position = torch.where(document > 0, torch.arange(LENGTH) - 6, torch.arange(LENGTH))
    y = cell(
        Streams({"text": x}), make_env(make_seq(document=document, position=position), Banded())
    )
    marked = (torch.arange(LENGTH) == 0).long()
    for start, end in ((0, 6), (6, LENGTH)):
        wanted = by_loops(cell, x[0, start:end], marked[: end - start], REAL[0, start:end])
        torch.testing.assert_close(y[0, start:end], wanted, rtol=1e-10, atol=1e-10)


def test_copies_give_what_attention_gives() -> None:
    """With first weights, also where positions turn queries and keys."""
    cell = make(qk_norm=True)
    plain = Attention(width=W, num_heads=HEADS, dropout=0.0, qk_norm=True).double().eval()
    for initializer in (partial(normal, std=0.5), partial(fan_in, std=1.0)):
        for module in (cell, plain):
            initializer(module, generator=torch.Generator().manual_seed(3))
        env = make_env(make_seq(**{"global": MARKED}), Banded(block=4), Rotary())
        far, near = (module(Streams({"text": stream()}), env) for module in (cell, plain))
        torch.testing.assert_close(far[REAL], near[REAL], rtol=1e-10, atol=1e-10)
        with torch.no_grad():
            cell.global_maps.q.weight.add_(0.5)
        assert not torch.allclose(cell(Streams({"text": stream()}), env), near)


def test_copies_have_nothing_of_what_lora_adds_to_the_first_map() -> None:
    cell = make()
    maps = {
        name: part for name, part in cell.projections().maps.items() if name in {"query", "value"}
    }
    attach(cell.qkv, "lora", LowRankChange(maps, rank=2, scale=2.0, dropout=0.0))
    normal(cell, std=0.5, generator=torch.Generator().manual_seed(3))
    far = cell.global_maps
    assert set(dict(far.named_parameters())) == {"q.weight", "q.bias", "kv.weight", "kv.bias"}
    for name in ("weight", "bias"):
        copied = torch.cat([far.q.get_parameter(name), far.kv.get_parameter(name)])
        torch.testing.assert_close(copied, cell.qkv.get_parameter(name), rtol=0, atol=0)


def test_recorded_maps_have_the_global_rows() -> None:
    cell, x = make(), stream()
    recorder = Recorder.of(frozenset({"attention", "values"}))
    env = make_env(make_seq(**{"global": MARKED}), Dense(), recorder=recorder)
    y = cell(Streams({"text": x}), env)
    assert recorder is not None
    (maps,) = recorder.recorded["attention"]
    far = cell.global_maps.kv(x).unflatten(-1, (2, HEADS, D))[:, :, 1].transpose(1, 2)
    (near,) = recorder.recorded["values"]
    seen = torch.where(MARKED[:, None, :, None] > 0, maps @ far, maps @ near)
    wanted = cell.out(seen.transpose(1, 2).flatten(2))
    torch.testing.assert_close(y[REAL], wanted[REAL], rtol=1e-5, atol=1e-6)


def read_in_parts(cell: GlobalAttention, x: Tensor, ends: list[int], tokens: int) -> Tensor:
    """The text in parts that end there, under a causal pattern."""
    pattern = Causal() & (Window(reach=REACH) | Global(tokens=tokens))
    cache, op, parts, start = Cache.of(1), AttentionOp(pattern, NoPosition(), Dense()), [], 0
    for end in ends:
        seq = Seq(torch.zeros(1, end - start, dtype=torch.long), torch.tensor([end - start]))
        seen = cache.extend(seq)
        positions = torch.arange(end)[None]
        bound = op.bind(seen, positions=positions[:, start:], all_positions=positions, start=start)
        env = Env({"text": bound}, seq=seq, cache=cache)
        parts.append(cell(Streams({"text": x[:1, start:end]}), env))
        start = end
    return torch.cat(parts, 1)


def test_tokens_one_by_one() -> None:
    cell, x = make(), stream()
    whole = read_in_parts(cell, x, [LENGTH], tokens=2)
    by_token = read_in_parts(cell, x, [1, 2, 3, 9, LENGTH], tokens=2)
    torch.testing.assert_close(by_token, whole, rtol=1e-10, atol=1e-10)


def test_a_global_token_after_others_cannot_be_read_alone() -> None:
    cell, cache = make(), Cache.of(1)
    op = AttentionOp(Causal() & Global(tokens=1), NoPosition(), Dense())
    for start, mark in ((0, 0), (1, 1)):
        track = {"global": torch.tensor([[mark]])}
        seq = Seq(torch.zeros(1, 1, dtype=torch.long), torch.tensor([1]), track)
        seen, positions = cache.extend(seq), torch.arange(start + 1)[None]
        bound = op.bind(seen, positions=positions[:, start:], all_positions=positions, start=start)
        env = Env({"text": bound}, seq=seq, cache=cache)
        if mark:
            with pytest.raises(UsageError, match="a global token after 1 tokens"):
                cell(Streams({"text": stream()[:1, :1]}), env)
        else:
            cell(Streams({"text": stream()[:1, :1]}), env)


def test_its_work_is_that_of_five_maps_and_out() -> None:
    work = make().work(RowSize(100, keys=10))
    assert work.macs == 100 * (3 + 2 + 1) * W * W
    assert work.scores == 2 * 100 * 10 * W
