"""Several tasks of one model at once: how often each has its turn, and what an update trains."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from plmctl.core.batch import Batch, Rows, Seq
from plmctl.core.errors import DataError
from plmctl.objectives.base import Objective, Output, Term
from plmctl.tasks.batches import Batches
from plmctl.tasks.mixing.base import Mixing
from plmctl.tasks.mixing.proportional import Proportional
from plmctl.tasks.mixing.temperature import Temperature
from plmctl.tasks.several import SideLoss, SideTask, TaskBatches

SIZES = {"text": 24, "big": 60, "small": 5}


def batches(count: int, world: int = 1, rank: int = 0) -> Batches:
    ids = np.arange(count, dtype=np.int64)[:, None] % 7
    rows = Rows(key=np.arange(count), seqs={"text": Seq(ids, np.ones(count, dtype=np.int64))})
    return Batches(rows, batch_size=4, micro_batch_size=2, seed=3, world=world, rank=rank)


def mixed(mixing: Mixing, seed: int = 1, world: int = 1, rank: int = 0) -> TaskBatches:
    members = {name: batches(n, world, rank) for name, n in SIZES.items()}
    return TaskBatches(members, mixing, seed=seed)


def take(source: TaskBatches, updates: int) -> list[tuple[str, list[int]]]:
    taken = []
    for _ in range(updates):
        parts = next(source)
        assert len({batch.source for batch in parts}) == 1, "an update is of one task"
        taken.append((parts[0].source, [int(key) for part in parts for key in part.key]))
    return taken


def test_every_example_of_every_task_once_an_epoch() -> None:
    """MT-DNN's algorithm 1: the batches of all tasks together, shuffled."""
    source = mixed(Proportional())
    assert source.updates_per_epoch == 6 + 15 + 2
    orders = []
    for _ in range(2):
        epoch = take(source, source.updates_per_epoch)
        orders.append([name for name, _ in epoch])
        for name, n in SIZES.items():
            read = Counter(key for task, keys in epoch if task == name for key in keys)
            assert read == Counter(range(n))
    assert orders[0] != orders[1]
    assert orders[0] != sorted(orders[0])


def test_a_limit_leaves_the_rest_to_the_next_epoch() -> None:
    source = mixed(Proportional(limit=5))
    assert source.shares == {"text": 5, "big": 5, "small": 2}
    first, second, third = (take(source, 12) for _ in range(3))
    read = [key for task, keys in [*first, *second, *third] if task == "big" for key in keys]
    assert sorted(read) == list(range(60)), "three epochs of five updates read all of it once"


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0, 1e6])
@pytest.mark.parametrize("limit", [None, 10])
def test_temperature_by_its_formula(temperature: float, limit: int | None) -> None:
    """T5, sec. 3.5.2: r_m = min(e_m, K) / sum, raised to 1/T and made to add up to 1."""
    _check_shares({"a": 100, "b": 40, "c": 3}, temperature, limit)


def test_the_largest_remainder_has_the_last_turn() -> None:
    """a: 0.86, made 1; b: 6.29; c: 1.85."""
    _check_shares({"a": 1, "b": 6, "c": 2}, 0.9, None)


def _check_shares(updates: dict[str, int], temperature: float, limit: int | None) -> None:
    shares = Temperature(temperature=temperature, limit=limit).share_out(updates)
    sizes = [min(n, limit or n) for n in updates.values()]
    rates = [(n / sum(sizes)) ** (1 / temperature) for n in sizes]
    exact = [sum(sizes) * rate / sum(rates) for rate in rates]
    assert all(abs(share - n) < 1 for share, n in zip(shares.values(), exact, strict=True))
    assert sum(shares.values()) == sum(sizes)
    if temperature == 1:
        assert list(shares.values()) == sizes
    if temperature == 1e6:
        assert max(shares.values()) - min(shares.values()) <= 1


def test_every_task_has_a_turn() -> None:
    assert Temperature(temperature=0.1).share_out({"a": 1000, "b": 1})["b"] == 1


def test_it_goes_on_where_it_was_stopped() -> None:
    source = mixed(Temperature(temperature=2.0))
    take(source, 30)
    state = source.state_dict()
    expected = take(source, 40)
    again = mixed(Temperature(temperature=2.0))
    again.load_state_dict(state)
    assert take(again, 40) == expected
    with pytest.raises(DataError, match="other tasks"):
        mixed(Proportional()).load_state_dict(state)


def test_processes_share_out_what_one_has() -> None:
    """Of a rest of one example, one process has it, and the other only counts its losses."""
    one, two = mixed(Proportional()), [mixed(Proportional(), world=2, rank=r) for r in range(2)]
    spare = 0
    for _ in range(one.updates_per_epoch):
        whole = [int(key) for batch in next(one) for key in batch.key]
        parts = [batch for source in two for batch in next(source)]
        assert [int(key) for b in parts if not b.spare for key in b.key] == whole
        assert len({batch.source for batch in parts}) == 1
        spare += sum(batch.spare for batch in parts)
    assert spare == 1
    assert {**two[0].state_dict()} == {**one.state_dict()}
    mixed(Proportional()).load_state_dict(two[1].state_dict())


class Head(Objective):
    """The sum of what the head `class` says of the keys."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"class": len(batch.key)}

    def forward(self, model: Any, batch: Batch, state: Any = None) -> Output:
        said = model.heads["class"](batch.key[:, None].float())
        return Output({"class": Term(said.sum())}, {"acc/class": (said.sum(), 1)})


def test_a_task_beside_asks_its_own_head() -> None:
    heads = nn.ModuleDict({"class": nn.Linear(1, 1), "more_class": nn.Linear(1, 1)})
    model: Any = type("M", (nn.Module,), {})()
    model.heads, model.backbone = heads, nn.Identity()
    task: Any = Head()
    loss = SideLoss(SideTask("more", task, {"class": "more_class"}))
    batch = next(batches(8))[0]
    out = loss(model, batch)
    assert loss.counts(batch) == {"more_class": 2}
    assert list(out.terms) == ["more_class"]
    assert list(out.logs) == ["acc/more_class"]
    out.terms["more_class"].total.backward()
    assert heads["class"].weight.grad is None
    assert torch.equal(heads["more_class"].weight.grad, batch.key.float().sum().view(1, 1))
    assert not list(loss.parameters()), "the model is no part of the loss"
