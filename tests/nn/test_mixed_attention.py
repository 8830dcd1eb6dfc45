"""ConvBERT's cells against loops over heads, tokens and taps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.nn.cells.grouped_feedforward import GroupedFeedForward
from plmctl.nn.cells.mixed_attention import MixedAttention
from plmctl.nn.env import Env, Streams
from plmctl.runs.contract.stand_in import TINY

W, HEADS, KERNEL, T = 12, 3, 5, 7
D = W // 2 // HEADS


@torch.no_grad()
def test_the_half_of_convolution_is_the_sum_over_taps() -> None:
    torch.manual_seed(0)
    cell = MixedAttention(width=W, num_heads=HEADS, dropout=0.0, kernel=KERNEL).double()
    x = torch.randn(1, T, W, dtype=torch.float64)
    cell.out.weight.copy_(torch.eye(W))
    cell.out.bias.zero_()
    seen = torch.randn(1, HEADS, T, D, dtype=torch.float64)
    cell.attend_to = lambda q, k, v, env: seen  # type: ignore[method-assign]
    found = cell(Streams({"text": x}), Env({}))[0]
    assert found[:, : W // 2].equal(seen[0].transpose(0, 1).flatten(1))
    query = cell.qkv(x)[0, :, : W // 2]
    values = cell.values(x)[0]
    for t in range(T):
        near = [t + j - KERNEL // 2 for j in range(KERNEL)]
        depthwise = sum(
            cell.span.taps.weight[:, j] * x[0, i] for j, i in enumerate(near) if 0 <= i < T
        )
        scores = cell.taps(cell.span.out(depthwise) * query[t])
        for h in range(HEADS):
            kernel = scores[h * KERNEL : (h + 1) * KERNEL].softmax(0)
            columns = slice(h * D, (h + 1) * D)
            wanted = sum(kernel[j] * values[i, columns] for j, i in enumerate(near) if 0 <= i < T)
            own = found[t, W // 2 + h * D : W // 2 + (h + 1) * D]
            torch.testing.assert_close(own, wanted, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_groups_of_columns_are_maps_of_their_own() -> None:
    torch.manual_seed(0)
    cell = GroupedFeedForward(width=W, inner_width=18, activation="relu", groups=3).double()
    x = torch.randn(2, T, W, dtype=torch.float64)

    def group(map: Tensor, bias: Tensor, x: Tensor) -> Tensor:
        maps, biases, parts = map.chunk(3), bias.chunk(3), x.chunk(3, -1)
        return torch.cat([p @ m.T + b for p, m, b in zip(parts, maps, biases, strict=True)], -1)

    inner = group(cell.up.weight, cell.up.bias, x).relu()
    wanted = group(cell.down.weight, cell.down.bias, inner)
    torch.testing.assert_close(cell(Streams({"text": x}), Env({})), wanted)
    with pytest.raises(ConfigError, match="a divisor of"):
        GroupedFeedForward(width=W, inner_width=16, activation="relu", groups=3)


def test_padding_changes_nothing_and_every_weight_learns() -> None:
    words = ["size=tiny", "size.width=16", "size.inner_width=24", "size.num_heads=2"]
    words += ["model.stack.layout=my*2", "model.stack.cells.m.kernel=3", "data.path=x"]
    cfg = compose("pretrain", "electra", [*words, "format.max_length=12", "train.steps=1"])
    model = build_model(cfg, vocab_size=13, vocab=TINY, seed=0).eval()
    ids = torch.tensor([[3, 7, 9, 11, 0, 0]])

    def run(ids: Tensor) -> Tensor:
        return model(Batch(torch.arange(1), {"text": Seq(ids, torch.tensor([4]), {})})).last[:, :4]

    torch.testing.assert_close(run(ids), run(ids[:, :4]))
    run(ids).square().sum().backward()
    assert all(w.grad is not None for w in model.backbone.stack.parameters())
