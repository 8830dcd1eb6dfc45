"""Magnitude pruning against torch.nn.utils.prune, and its schedule against a loop."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from plmctl.core.errors import ConfigError
from plmctl.training.pruning.base import find_weights, keep_largest
from plmctl.training.pruning.magnitude import Magnitude
from tests.training.pruning.driven import BLOCKS, loss_of, make_batch, take_up, update


def magnitude(**how: Any) -> Magnitude:
    usual = {"sparsity": 0.5, "begin_at": 0.0, "end_at": 0.0, "every": 1, "scope": "matrix"}
    return Magnitude(**{**usual, **how})


def linears(model: Any) -> dict[str, nn.Linear]:
    return {
        f"{name}.weight": part
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear) and ".blocks." in name
    }


@pytest.mark.parametrize("scope", ["matrix", "model"])
@pytest.mark.parametrize("sparsity", [0.25, 0.9])
def test_the_smallest_weights_are_those_of_torch(scope: Any, sparsity: float) -> None:
    part = magnitude(scope=scope, sparsity=sparsity)
    model = take_up(part, layers=2)
    theirs = copy.deepcopy(model)
    pairs = [(linear, "weight") for linear in linears(theirs).values()]
    if scope == "model":
        prune.global_unstructured(pairs, pruning_method=prune.L1Unstructured, amount=sparsity)
    else:
        for linear, name in pairs:
            prune.l1_unstructured(linear, name, amount=sparsity)
    part.before_step(model, None, 1.0)  # type: ignore[arg-type]
    part.after_step(model, 1)
    for name, linear in linears(theirs).items():
        assert bool((dict(model.named_parameters())[name] == linear.weight).all()), name
    assert part.figures()["sparsity"] == pytest.approx(sparsity, abs=0.002)


def test_pruned_weights_learn_nothing_as_under_a_mask_of_torch() -> None:
    part = magnitude(sparsity=0.6)
    model = take_up(part)
    part.before_step(model, None, 1.0)  # type: ignore[arg-type]
    part.after_step(model, 1)
    theirs = copy.deepcopy(model)
    for name, linear in linears(theirs).items():
        prune.custom_from_mask(linear, "weight", part.masks.of(name))
    ours, other = (torch.optim.SGD(m.parameters(), lr=0.05) for m in (model, theirs))
    for step in range(2, 6):
        loss_of(theirs, make_batch(step)).backward()
        other.step()
        other.zero_grad()
        update(part, model, ours, share=1.0, step=step)
    for name, linear in linears(theirs).items():
        now: Any = linear.weight_orig * linear.weight_mask  # type: ignore[operator]
        torch.testing.assert_close(dict(model.named_parameters())[name].data, now.data)
    loss_of(model, make_batch()).backward()
    for name, linear in linears(model).items():
        assert linear.weight.grad is not None
        assert bool((linear.weight.grad[~part.masks.of(name)] == 0).all())


def test_pruned_weights_stay_0_whatever_the_optimizer_remembers() -> None:
    part = magnitude(sparsity=0.8, end_at=0.5)
    model = take_up(part)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    zeros = 0
    for step in range(1, 11):
        update(part, model, optimizer, share=step / 10, step=step)
        weights = [linear.weight for linear in linears(model).values()]
        now = sum(int((w == 0).sum()) for w in weights)
        assert now >= zeros
        zeros = now
    assert zeros == sum(round(0.8 * w.numel()) for w in weights)


def test_the_share_rises_as_a_cubic() -> None:
    part = magnitude(sparsity=0.9, begin_at=0.2, end_at=0.7, every=2)
    model, sizes = take_up(part), 0
    sizes = sum(part.masks.of(name).numel() for name in part.names)
    wanted = 0.0
    for step in range(1, 21):
        x = step / 20
        part.before_step(model, None, x)  # type: ignore[arg-type]
        part.after_step(model, step)
        if x >= 0.7:
            wanted = 0.9
        elif x > 0.2 and step % 2 == 0:
            wanted = 0.9 + (0 - 0.9) * (1 - (x - 0.2) / 0.5) ** 3
        assert part.figures()["sparsity"] == pytest.approx(wanted, abs=4 / sizes), step
        assert part.unfinished == (x < 0.7)


def test_exactly_as_many_are_masked_among_equal_values() -> None:
    values = {"a": torch.tensor([[1.0, 0.0], [0.0, 0.0]]), "b": torch.tensor([0.0, 2.0])}
    for pruned, kept in ((0.0, 6), (0.5, 3), (5 / 6, 1)):
        masks = keep_largest(values, pruned, "model")
        assert sum(int(mask.sum()) for mask in masks.values()) == kept
        assert bool(masks["b"][1])
    assert [int(m.sum()) for m in keep_largest(values, 0.5, "matrix").values()] == [2, 1]


def test_globs_choose_matrices() -> None:
    part = magnitude(only=["*.f.*", "*out*"])
    take_up(part)
    own = ("a.0.cell.out", "f.0.cell.up", "f.0.cell.down")
    assert set(part.names) == {f"{BLOCKS}.{cell}.weight" for cell in own}
    with pytest.raises(ConfigError, match="matches no matrix of a layer"):
        take_up(magnitude(only=["*.g.*"]))


def test_a_model_that_trains_no_layers_is_refused() -> None:
    model = take_up(magnitude())
    model.requires_grad_(False)
    with pytest.raises(ConfigError, match="needs a model with trained linear maps"):
        find_weights(model)


def test_pruning_begins_before_it_ends() -> None:
    with pytest.raises(ConfigError, match=r"begin_at=0.8: at most end_at=0.5"):
        magnitude(begin_at=0.8, end_at=0.5)
