"""AdapterFusion and stacks of adapters: loops over tokens, from the definition."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.nn.peft.base import find_cells
from plmctl.nn.peft.bottleneck import Bottleneck
from plmctl.nn.peft.fusion import AdapterFusion, TrainedAdapters
from tests.nn.stacks import B, T, W, make_env, make_input, make_stack, run_stack


def make_adapters(*more: str) -> list[Bottleneck]:
    """Of different widths; the second one behind `more` cells, too."""
    one = Bottleneck(cells=["feed-forward"], inner_width=5, activation="relu")
    cells = [*more, "feed-forward"]
    return [one, Bottleneck(cells=cells, inner_width=3, activation="gelu", scale=2.0)]


def draw(stack: Any, mark: str) -> None:
    """New weights for all of a method, after its own start."""
    generator = torch.Generator().manual_seed(1)
    for name, part in stack.named_modules():
        if name.endswith(f".{mark}"):
            part.start(generator)
            for adapter in part.each():
                for weight in adapter.parameters():
                    weight.data.normal_(generator=generator)


def add(adapter: Any, y: Tensor, activation: Any, scale: float) -> Tensor:
    """[W] what an adapter adds to the state y of one token."""
    inner = activation(adapter.down @ y + adapter.down_bias)
    return scale * (adapter.up @ inner + adapter.up_bias)


def test_fusion_mixes_what_adapters_add() -> None:
    stack = make_stack("f", dtype=torch.float64)
    (plain,) = find_cells(copy.deepcopy(stack))
    method = AdapterFusion(runs=["a", "b"], adapters=make_adapters()[:1] + make_adapters()[:1])
    method.add_to(stack)
    stack.double()
    draw(stack, "fusion")
    (cell,) = find_cells(stack)
    fused: Any = cell.fusion
    torch.testing.assert_close(fused.value.data, torch.eye(W).double(), atol=1e-4, rtol=0)
    assert fused.penalty() < 1e-6
    for name in method.trains(stack):
        stack.get_parameter(name).data.normal_(generator=torch.Generator().manual_seed(len(name)))
    x = make_input(torch.float64)
    y, found = plain({"text": x}, None), cell({"text": x}, None)  # type: ignore[arg-type]
    for row in range(B):
        for token in range(T):
            state = y[row, token]
            query = fused.query @ state + fused.query_bias
            added = [add(part, state, torch.relu, 1.0) for part in fused.each()]
            scores = torch.stack([query @ (fused.key @ z + fused.key_bias) for z in added])
            shares = scores.exp() / scores.exp().sum()
            wanted = state + sum(s * (fused.value @ z) for s, z in zip(shares, added, strict=True))
            torch.testing.assert_close(found[row, token], wanted)
    own = fused.value - torch.eye(W)
    torch.testing.assert_close(fused.penalty(), 0.01 * own.square().sum())


def test_trained_adapters_stand_one_behind_the_other_below_new_ones() -> None:
    stack = make_stack("f", dtype=torch.float64)
    (plain,) = find_cells(copy.deepcopy(stack))
    below, above = TrainedAdapters(runs=["a", "b"], adapters=make_adapters()), make_adapters()[0]
    below.add_to(stack)
    above.add_to(stack)
    stack.double()
    draw(stack, "below")
    (cell,) = find_cells(stack)
    new: Any = cell.adapter
    for weight in new.parameters():
        weight.data.normal_(generator=torch.Generator().manual_seed(3))
    x = make_input(torch.float64)
    found, y = cell({"text": x}, None), plain({"text": x}, None)  # type: ignore[arg-type]
    first, second = cell.below.each()  # type: ignore[union-attr, operator]
    gelu = torch.nn.functional.gelu
    for row in range(B):
        for token in range(T):
            state = y[row, token]
            state = state + add(first, state, torch.relu, 1.0)
            state = state + add(second, state, gelu, 2.0)
            state = state + add(new, state, torch.relu, 1.0)
            torch.testing.assert_close(found[row, token], state)
    assert below.trains(stack) == []
    assert len(above.trains(stack)) == 4


def test_adapters_of_some_cells_are_fused_where_they_are() -> None:
    stack = make_stack("af*2", dtype=torch.float64)
    method = AdapterFusion(runs=["a", "b"], adapters=make_adapters("attention"))
    method.add_to(stack)
    stack.double()
    draw(stack, "fusion")
    cells: Any = find_cells(stack)
    counts = [len(cell.fusion.each()) for cell in cells]
    assert sorted(counts) == [1, 1, 2, 2]
    names = method.trains(stack)
    assert len(names) == 4 * 5
    last, _ = run_stack(stack, make_input(torch.float64), make_env())
    last.square().sum().backward()
    assert all(stack.get_parameter(name).grad is not None for name in names)


def test_runs_and_adapters_belong_together() -> None:
    with pytest.raises(ConfigError, match="one adapter for each of 1 runs"):
        AdapterFusion(runs=["a"])
    with pytest.raises(ConfigError, match="one run"):
        TrainedAdapters(runs=[])
    method = TrainedAdapters(runs=["a", "b"], adapters=make_adapters())
    name = "backbone.stack.blocks.f.0.cell.adapter.down"
    assert method.rename(name, 1) == "backbone.stack.blocks.f.0.cell.below.adapters.1.down"
