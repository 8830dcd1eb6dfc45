"""The states of each process in a checkpoint: its random generators, and the states that it carries
from row to row.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from torch import Tensor

from plmctl.data.reader import choose_rows_of_rank
from plmctl.training.carried_states import CarriedStates, refuse_unnamed
from plmctl.training.processes.world import World
from plmctl.training.randomness import random_state, restore_random_state

MEMORY = "memory/"  # before the names of carried states


class OwnStates:
    """The generators and carried states of this process."""

    def __init__(self, memory: CarriedStates, world: World) -> None:
        self._memory, self._world = memory, world

    def tensors(self) -> dict[str, Tensor]:
        """Those of this process, by name."""
        carried = {f"{MEMORY}{key}": state.cpu() for key, state in self._memory.tensors().items()}
        return {**random_state(self._world.device), **carried}

    def load(self, saved: Mapping[str, Tensor], *, processes: int, sources: int = 1) -> bool:
        """Restore the states of this process from `processes`, as `join` wrote them. False if the
        number of processes has changed: then generators are not restored, and carried states are
        shared out.

        Args:
            sources: The number of sources of the rows, which states of before do not name.
        """
        ranks = [_strip(saved, f"{rank}/{MEMORY}") for rank in range(processes)]
        world = self._world
        if processes == world.size:
            restore_random_state(_strip(saved, f"{world.rank}/"), world.device)
            self._memory.load([ranks[world.rank]])
            return True
        if sources > 1:
            refuse_unnamed(ranks, processes, world.size)
        share = partial(choose_rows_of_rank, world=world.size, rank=world.rank)
        self._memory.load(ranks, share)
        return False


def join(ranks: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors of processes, the number of the process before each name."""
    return {
        f"{rank}/{name}": tensor
        for rank, tensors in ranks.items()
        for name, tensor in tensors.items()
    }


def _strip(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The entries whose names begin with `prefix`, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
