"""Importance of heads and neurons against explicit gates, one row at a time."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.training.pruning.units import heads, neurons
from tests.training.pruning.driven import BLOCKS, SCALE, loss_of, make_batch, take_up, update

HOW: Any = {"sparsity": 0.5, "begin_at": 0.0, "end_at": 1.0, "every": 3, "scope": "model"}


def slopes(model: Model, cell: str, count: int, row: int, seed: int) -> Tensor:
    """[count] dL/dgate of one row, with gates that multiply the input of the last map."""
    gates = torch.ones(count, dtype=torch.float64, requires_grad=True)

    def gate(module: Any, given: Any) -> Any:
        return (given[0] * gates.repeat_interleave(module.in_features // count),)

    handle = model.get_submodule(f"{BLOCKS}.{cell}").register_forward_pre_hook(gate)
    batch = make_batch(seed)
    last = model(batch).last
    handle.remove()
    ramp = torch.linspace(-1, 1, last.shape[-1], dtype=last.dtype)
    loss = ((last * ramp).sum(-1).square() * batch.text.real)[row].sum() / SCALE
    return torch.autograd.grad(loss, gates)[0]


CASES = [(heads, ["a.0.cell.out", "a.1.cell.out"], 2), (neurons, ["f.0.cell.down"] * 1, 16)]


@pytest.mark.parametrize(("make", "cells", "count"), CASES)
@pytest.mark.parametrize("normalise", [True, False])
def test_importance_is_the_mean_slope_of_gates(
    make: Any, cells: list[str], count: int, normalise: bool
) -> None:
    part: Any = make(**HOW, normalise=normalise)
    model = take_up(part, layers=2)
    for step in (1, 2):
        with part.reading(model):
            loss = loss_of(model, make_batch(step))
        loss.backward()
        part.before_step(model, None, step / 10)
    wanted = {
        cell: sum(slopes(model, cell, count, *at).abs() for at in product(range(4), (1, 2)))
        for cell in cells
    }
    for cell, value in wanted.items():
        found = part.importance.of(f"{BLOCKS}.{cell}.weight")
        torch.testing.assert_close(found.double(), value, rtol=1e-5, atol=1e-7)
    part.share.set(0.5)
    part.after_step(model, 3)
    if make is heads:  # of four heads, as many as s(0.5) says
        flat = torch.cat([v / v.norm() if normalise else v for v in wanted.values()])
        gone = flat.argsort()[: round(4 * 0.5 * (1 - 0.5**3))]
        columns = [dict(model.named_parameters())[f"{BLOCKS}.{c}.weight"] for c in cells]
        zero = torch.cat([(c == 0).all(0).view(2, 4).all(1) for c in columns])
        assert sorted(zero.nonzero().flatten().tolist()) == sorted(gone.tolist())
    assert all(float(part.importance.of(n).abs().sum()) == 0 for n in part.names)


def test_removed_units_stay_removed_and_their_share_is_exact() -> None:
    part: Any = neurons(**{**HOW, "sparsity": 0.25, "end_at": 0.6}, normalise=True)
    model = take_up(part, layers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
    gone: set[tuple[int, int]] = set()
    for step in range(1, 11):
        update(part, model, optimizer, share=step / 10, step=step)
        named = dict(model.named_parameters())
        downs = [named[f"{BLOCKS}.f.{n}.cell.down.weight"] for n in range(2)]
        now = {(n, int(c)) for n, w in enumerate(downs) for c in (w == 0).all(0).nonzero()}
        assert gone <= now
        gone = now
    assert len(gone) == 8
    assert part.figures() == {"sparsity": 0.25}
    assert not model.get_submodule(f"{BLOCKS}.f.0.cell.down")._forward_pre_hooks


def test_the_same_share_of_each_layer() -> None:
    part: Any = neurons(**{**HOW, "scope": "layer", "end_at": 0.1}, normalise=False)
    model = take_up(part, layers=2)
    update(part, model, torch.optim.SGD(model.parameters(), lr=0.1), share=0.1, step=1)
    assert [int(part.masks.of(name).sum()) for name in part.names] == [8, 8]


def test_a_model_without_heads_is_refused() -> None:
    part: Any = heads(**HOW, normalise=True)
    model = take_up(part)
    model.get_submodule(f"{BLOCKS}.a").requires_grad_(False)
    with pytest.raises(ConfigError, match="needs a model with trained heads of attention"):
        part.begin(type("Given", (), {"model": model})())
