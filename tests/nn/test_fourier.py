"""FNet's transform against sums over tokens and columns, and parts that meet a cell without
weights.
"""

from __future__ import annotations

import cmath
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plmctl.artifacts.assemble import build_model
from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, UsageError
from plmctl.nn.cells.base import Cell, RowSize
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.cells.fourier import Fourier
from plmctl.nn.env import Env, Streams
from plmctl.nn.init import normal, scaled_residual, zero_residual
from plmctl.nn.last_maps import find_last_maps
from plmctl.nn.norm import layer_norm
from plmctl.nn.peft.bottleneck import Bottleneck
from plmctl.nn.peft.lora import LowRank
from plmctl.nn.peft.prefix import PrefixTuning
from plmctl.nn.peft.subset import Subset
from plmctl.nn.positions import NoPosition
from plmctl.nn.residual import PostNorm
from plmctl.nn.stack import Stack
from plmctl.runs.contract.contract import check_contract
from plmctl.runs.contract.stand_in import TINY

W = 6


def transform(x: Tensor) -> Tensor:
    """`y[n, k] = Re sum_t sum_w x[t, w] e^(-2 pi i (n t / T + k w / W))`, `x [T, W]`, by loops."""
    (length, width), y = x.shape, torch.zeros_like(x)
    for n in range(length):
        for k in range(width):
            total = 0j
            for t in range(length):
                for w in range(width):
                    turns = n * t / length + k * w / width
                    total += float(x[t, w]) * cmath.exp(-2j * cmath.pi * turns)
            y[n, k] = total.real
    return y


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def run(cell: Cell, x: Tensor, length: list[int], **tracks: Tensor) -> Tensor:
    full = not tracks and set(length) == {x.shape[1]}
    ids = torch.zeros(x.shape[:2], dtype=torch.int64)
    return cell(Streams({"text": x}), Env({}, seq=Seq(ids, torch.tensor(length), tracks, full)))


@pytest.mark.parametrize("length", [1, 4, 7])
@pytest.mark.parametrize("apart", [True, False])
def test_a_row_is_the_sum_over_tokens_and_columns(length: int, apart: bool) -> None:
    x = draw(2, length, W)
    found = run(Fourier(width=W, apart=apart), x, [length, length])
    torch.testing.assert_close(found, torch.stack([transform(row) for row in x]))


def test_padding_is_mixed_in_unless_it_stays_apart() -> None:
    x = draw(1, 7, W)
    torch.testing.assert_close(run(Fourier(width=W), x, [4])[0], transform(x[0]))
    torch.testing.assert_close(
        run(Fourier(width=W, apart=True), x, [4])[0, :4], transform(x[0, :4])
    )


def test_documents_stay_apart_or_are_refused() -> None:
    x, document = draw(1, 9, W), torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2]])
    found = run(Fourier(width=W, apart=True), x, [9], document=document)[0]
    wanted = torch.cat([transform(part) for part in x[0].split([3, 4, 2])])
    torch.testing.assert_close(found, wanted)
    with pytest.raises(UsageError, match="one document"):
        run(Fourier(width=W), x, [9], document=document)


def test_the_transform_is_in_fp32_under_autocast() -> None:
    x = draw(2, 8, W).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = run(Fourier(width=W), x, [8, 8])
    assert found.dtype == torch.bfloat16
    wanted = run(Fourier(width=W), x.float(), [8, 8])
    assert found.equal(wanted.bfloat16())


def make_stack(layout: str = "jf*2") -> Stack:
    torch.manual_seed(0)
    inner = partial(FeedForward, width=W, inner_width=8, activation="relu")
    residual = PostNorm(norm=partial(layer_norm, width=W, eps=1e-5), dropout=0.5)
    return Stack(
        layout=layout, cells={"j": partial(Fourier, width=W), "f": inner}, residual=residual
    )


@pytest.mark.parametrize(("start", "factor"), [(scaled_residual, 0.5), (zero_residual, 0.0)])
def test_initializers_change_the_last_maps_that_exist(start: Any, factor: float) -> None:
    stack, plain = make_stack(), make_stack()  # 4 blocks: 1 / sqrt(4)
    for part, rule in ((stack, start), (plain, normal)):
        rule(part, std=1.0, generator=torch.Generator().manual_seed(0))
    every: Any = (stack.blocks["f"], plain.blocks["f"])
    blocks = zip(*every, strict=True)
    for block, other in blocks:
        torch.testing.assert_close(block.cell.down.weight, factor * other.cell.down.weight)


def test_no_dropout_acts_on_the_transform() -> None:
    stack = make_stack("j").train()
    x = draw(1, 5, W).float()
    env = Env({"text": BoundOp(Mask(None), NoPosition(), torch.arange(5)[None])})
    first, second = (stack(Streams({"text": x}), env)[0]["text"] for _ in range(2))
    assert first.equal(second)


def test_layers_are_measured_at_the_maps_that_end_them() -> None:
    class Held(nn.Module):
        def __init__(self, stack: Stack) -> None:
            super().__init__()
            self.stack = stack

    stack = make_stack()
    maps = find_last_maps(Held(stack))
    downs = [block.cell.down.weight for block in stack.blocks["f"]]  # type: ignore[union-attr]
    assert [maps[f"layer.{n}"] for n in (1, 2)] == downs
    assert maps["last"] is downs[-1]
    with pytest.raises(ConfigError, match="no layer of this model ends with a linear map"):
        find_last_maps(Held(make_stack("j*2")))


def test_adapters_stand_behind_it_and_lora_finds_no_map() -> None:
    stack = make_stack("j*2")
    Bottleneck(cells=["mixing"], inner_width=2, activation="relu").add_to(stack)
    assert len(list(stack.parameters())) > 4  # norms, and two adapters
    with pytest.raises(ConfigError, match="no cell of this one has such maps"):
        LowRank(maps=["query"], rank=1, alpha=1.0).add_to(make_stack("j*2"))
    with pytest.raises(ConfigError, match="maps of this model: up, down"):
        LowRank(maps=["query"], rank=1, alpha=1.0).add_to(make_stack())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (partial(Bottleneck, inner_width=2, activation="relu"), ["attention", "feed-forward"]),
        (Subset, ["attention"]),
    ],
)
def test_the_usual_cells_of_a_method_have_a_fix_that_runs(make: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError, match="kinds of cells of this model: mixing, feed-f") as caught:
        make(cells=words).add_to(make_stack())
    assert caught.value.fix == "cells=[feed-forward]"
    method, stack = make(cells=["feed-forward"]), make_stack()
    method.add_to(stack)
    assert method.trains(stack)
    with pytest.raises(ConfigError, match="softmax") as caught:
        PrefixTuning(length=2).add_to(stack)
    assert caught.value.fix == "peft=[bitfit]"
    assert Subset(biases=True).trains(stack)


def test_its_work_grows_as_n_log_n_or_as_the_matrices() -> None:
    assert Fourier(width=4).work(RowSize(16)).scores == 1.25 * 64 * 6
    assert Fourier(width=4, apart=True).work(RowSize(16)).scores == 2 * 16 * 16 * 4
    assert Fourier(width=4).work(RowSize(16)).macs == 0


SMALL = ["size=tiny", "size.width=16", "size.inner_width=24", "size.num_heads=2", "data.path=x"]
SMALL += ["train.steps=1", "format.max_length=12", "model.stack.layout=jf*2"]


def test_packed_rows_are_refused_with_the_setting_that_keeps_them_apart() -> None:
    packed = [*SMALL, "format.packed=true"]
    with pytest.raises(ConfigError, match="one document") as caught:
        check_contract(compose("pretrain", "bert", packed))
    fix = str(caught.value.fix)
    assert fix == "model.stack.cells.j.apart=true"
    check_contract(compose("pretrain", "bert", [*packed, fix]))
    with pytest.raises(ConfigError, match="earlier and later tokens"):
        check_contract(compose("pretrain", "bert", [*SMALL, "pattern=causal"]))


def test_every_weight_of_a_hybrid_learns() -> None:
    cfg = compose("pretrain", "bert", [*SMALL, "model.stack.layout=jf af"])
    model = build_model(cfg, vocab_size=13, vocab=TINY, seed=0).eval()
    ids = torch.tensor([[3, 7, 9, 11]])
    last = model(Batch(torch.arange(1), {"text": Seq(ids, torch.tensor([4]), {})})).last
    last.square().sum().backward()
    assert all(w.grad is not None for w in model.backbone.stack.parameters())
