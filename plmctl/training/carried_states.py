"""The recurrent state (Transformer-XL memory, LSTM h and c) of each micro-batch slot: kept here,
detached, saved leaf by leaf.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as tree

from plmctl.core.errors import UsageError
from plmctl.models.base import Backbone


class CarriedStates:
    """One state for each micro-batch slot of this rank; None for models without memory."""

    def __init__(self, backbone: Backbone, device: torch.device) -> None:
        self._backbone, self._device = backbone, device
        self._slots: dict[int, Any] = {}

    def before(self, slot: int, rows: int) -> Any:
        """The state with which to read `rows` streams: that of the slot, or a fresh one."""
        if slot in self._slots:
            return self._slots[slot]
        return self._backbone.fresh_state(rows, self._device)

    def keep(self, slot: int, state: Any) -> None:
        """Keep the state that the objective returned, detached from its graph."""
        if state is not None:
            self._slots[slot] = tree.tree_map_only(Tensor, Tensor.detach, state)

    def clear(self) -> None:
        """Forget all states, at the beginning of a stage."""
        self._slots = {}

    def tensors(self) -> dict[str, Tensor]:
        """{"<slot>/<leaf>": tensor}."""
        return {
            f"{slot}/{number}": leaf
            for slot, state in self._slots.items()
            for number, leaf in enumerate(tree.tree_leaves(state))
            if isinstance(leaf, Tensor)
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` gave; the backbone's fresh state has the structure of the
        leaves.
        """
        slots: dict[int, dict[int, Tensor]] = {}
        for key, leaf in tensors.items():
            slot, number = key.split("/")
            slots.setdefault(int(slot), {})[int(number)] = leaf.to(self._device)
        for place, saved in slots.items():
            leaves, shape = tree.tree_flatten(
                self._backbone.fresh_state(saved[min(saved)].shape[0], self._device)
            )
            self._slots[place] = tree.tree_unflatten(
                [saved.get(i, leaf) for i, leaf in enumerate(leaves)], shape
            )


def refuse_other_processes(saved: int, now: int) -> None:
    """CarriedStates belongs to the rows of one rank: UsageError if the number of ranks changed."""
    if saved != now:
        raise UsageError(
            f"this run carries memory from row to row and was saved by {saved} processes, it cannot"
            f" go on with {now}\n  fix: train.processes={saved}"
        )
