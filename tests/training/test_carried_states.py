"""What is carried from row to row goes on with its rows, in other processes and micro-batches."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as tree

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch
from plmctl.core.errors import UsageError
from plmctl.runs.contract.stand_in import TINY
from plmctl.training.carried_states import CarriedStates
from plmctl.training.own_states import OwnStates, join
from plmctl.training.processes.world import World
from tests.training.toy import Recurrent, W, make_batch, make_trainer

ROWS = torch.arange(8.0)[:, None].expand(8, W)
CPU = torch.device("cpu")


def own(rank: int, processes: int) -> tuple[CarriedStates, OwnStates]:
    memory = CarriedStates(Recurrent(0.0), CPU)
    return memory, OwnStates(memory, World(rank, processes))


def saved(processes: int, micro: int) -> dict[str, Tensor]:
    """What processes save that each read their rows of eight."""
    ranks = []
    for rank in range(processes):
        memory, states = own(rank, processes)
        for slot, part in enumerate(ROWS.chunk(processes)[rank].split(micro)):
            memory.keep(("a", slot), {"mean": part})
            memory.keep(("b", slot), {"mean": part + 100})
        ranks.append(states.tensors())
    return join(dict(enumerate(ranks)))


@pytest.mark.parametrize(("before", "now"), [(2, 1), (1, 2), (4, 2), (2, 2), (1, 4), (1, 1)])
@pytest.mark.parametrize(("old", "new"), [(2, 2), (1, 2), (2, 1)])
def test_rows_keep_their_state(before: int, now: int, old: int, new: int) -> None:
    found, other = [], []
    for rank in range(now):
        memory, states = own(rank, now)
        assert states.load(saved(before, old), processes=before) is (before == now)
        for slot in range(8 // now // new):  # the sources have their turns in another order
            other.append(memory.before(("b", slot), new)["mean"])
            found.append(memory.before(("a", slot), new)["mean"])
    assert torch.equal(torch.cat(found), ROWS)
    assert torch.equal(torch.cat(other), ROWS + 100)


def test_states_that_name_no_source() -> None:
    """Those of earlier versions."""
    names = [name for name in saved(2, 4) if "/b/" not in name]
    former = {name.replace("/a/", "/"): saved(2, 4)[name] for name in names}
    assert "1/memory/0/0" in former
    memory, states = own(0, 1)
    with pytest.raises(UsageError, match=r"train\.processes=2"):
        states.load(former, processes=2, sources=2)
    states.load(former, processes=2)
    assert torch.equal(memory.before(("text", 0), 6)["mean"], ROWS[:6])
    with pytest.raises(UsageError, match="more rows than before"):
        memory.before(("text", 1), 6)


def test_sources_in_turn_have_memories_of_their_own() -> None:
    """A recurrent model over two texts, of which each update reads one: the same sums as over each
    text alone.
    """

    def states(batches: list[Batch]) -> list[Tensor]:
        trainer = make_trainer(Path(folder), backbone=Recurrent, dropout=0.0)
        found = []
        for batch in batches:
            counts = trainer.update.count([batch], {})
            trainer.update.gradient([batch], counts)
            found.append(trainer.memory.tensors()[f"{batch.source}/0/0"].clone())
        return found

    with tempfile.TemporaryDirectory() as folder:
        one = [replace(make_batch([n, n + 1]), source="one") for n in (1, 3, 5)]
        two = [replace(make_batch([n, n + 1]), source="two") for n in (11, 13, 15)]
        turns = states([batch for pair in zip(one, two, strict=True) for batch in pair])
        assert all(torch.equal(a, b) for a, b in zip(turns[::2], states(one), strict=True))
        assert all(torch.equal(a, b) for a, b in zip(turns[1::2], states(two), strict=True))


@pytest.mark.parametrize(
    "recipe", ["transformer_xl", "compressive_transformer", "adaptive_span", "elmo", "xlnet"]
)
def test_rows_come_first_in_every_memory(recipe: str) -> None:
    cfg = compose("pretrain", recipe, ["size=tiny"])
    model = build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0)
    leaves = [x for x in tree.tree_leaves(model.backbone.fresh_state(5, CPU)) if x is not None]
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    assert tensors
    assert all(len(leaf) == 5 for leaf in tensors)
