"""What is carried from row to row goes on with its rows, in other processes and micro-batches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as tree

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.errors import UsageError
from plmctl.runs.contract.stand_in import TINY
from plmctl.training.carried_states import CarriedStates
from plmctl.training.own_states import OwnStates, join
from plmctl.training.processes.world import World
from tests.training.toy import Recurrent, W

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
            memory.keep(slot, {"mean": part})
        ranks.append(states.tensors())
    return join(ranks)


@pytest.mark.parametrize(("before", "now"), [(2, 1), (1, 2), (4, 2), (2, 2), (1, 4), (1, 1)])
@pytest.mark.parametrize(("old", "new"), [(2, 2), (1, 2), (2, 1)])
def test_rows_keep_their_state(before: int, now: int, old: int, new: int) -> None:
    found = []
    for rank in range(now):
        memory, states = own(rank, now)
        assert states.load(saved(before, old), processes=before) is (before == now)
        found += [memory.before(slot, new)["mean"] for slot in range(8 // now // new)]
    assert torch.equal(torch.cat(found), ROWS)


def test_states_of_several_sources_and_of_other_rows_are_refused() -> None:
    memory, states = own(0, 1)
    with pytest.raises(UsageError, match=r"train\.processes=2"):
        states.load(saved(2, 4), processes=2, sources=2)
    states.load(saved(2, 4), processes=2)
    memory.before(0, 6)
    with pytest.raises(UsageError, match="more rows than before"):
        memory.before(1, 6)


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
