"""The recurrent state (Transformer-XL memory, LSTM h and c) of each micro-batch slot: kept here,
detached, saved leaf by leaf. The first dimension of a leaf is that of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as tree

from plmctl.core.errors import UsageError
from plmctl.models.base import Backbone
from plmctl.models.capabilities import start_memory


class CarriedStates:
    """One state for each micro-batch slot of this rank; None for models without memory."""

    def __init__(self, backbone: Backbone, device: torch.device) -> None:
        self._backbone, self._device = backbone, device
        self._slots: dict[int, Any] = {}
        self._rest: dict[int, Tensor] | None = None  # leaves that were loaded, of later slots

    def before(self, slot: int, rows: int) -> Any:
        """The state with which to read `rows` streams: that of the slot, or a fresh one."""
        if slot in self._slots:
            return self._slots[slot]
        if self._rest is not None:
            return self._take(rows)
        return start_memory(self._backbone, rows, self._device)

    def keep(self, slot: int, state: Any) -> None:
        """Keep the state that the objective returned, detached from its graph."""
        if state is not None:
            self._slots[slot] = tree.tree_map_only(Tensor, Tensor.detach, state)

    def clear(self) -> None:
        """Forget all states, at the beginning of a stage."""
        self._slots, self._rest = {}, None

    def tensors(self) -> dict[str, Tensor]:
        """{"<slot>/<leaf>": tensor}."""
        return {
            f"{slot}/{number}": leaf
            for slot, state in self._slots.items()
            for number, leaf in enumerate(tree.tree_leaves(state))
            if isinstance(leaf, Tensor)
        }

    def load(
        self, ranks: Sequence[Mapping[str, Tensor]], share: Callable[[int], slice] | None = None
    ) -> None:
        """Restore what `tensors` gave: the rows of all slots, one behind the other, cut anew as
        micro-batches come.

        Args:
            ranks: The results of `tensors`, of this process, or of all in their order.
            share: (the number of all rows) -> those of this process; None: all.
        """
        self.clear()
        slots = [leaves for tensors in ranks for leaves in _list_slots(tensors)]
        if slots:
            joined = {n: torch.cat([leaves[n] for leaves in slots]) for n in slots[0]}
            own = slice(None) if share is None else share(len(next(iter(joined.values()))))
            self._rest = {n: leaf[own].to(self._device) for n, leaf in joined.items()}

    def _take(self, rows: int) -> Any:
        """The next `rows` of the rows that were loaded."""
        assert self._rest is not None
        some = {number: leaf[:rows] for number, leaf in self._rest.items()}
        self._rest = {number: leaf[rows:] for number, leaf in self._rest.items()}
        if len(next(iter(some.values()))) != rows:
            raise UsageError(
                "this run carries memory from row to row, and an update has more rows than before\n"
                "  fix: leave train.batch_size out"
            )
        leaves, shape = tree.tree_flatten(start_memory(self._backbone, rows, self._device))
        return tree.tree_unflatten([some.get(i, leaf) for i, leaf in enumerate(leaves)], shape)


def _list_slots(tensors: Mapping[str, Tensor]) -> list[dict[int, Tensor]]:
    """{number of a leaf: it} of each slot, in their order."""
    slots: dict[int, dict[int, Tensor]] = {}
    for key, leaf in tensors.items():
        slot, number = key.split("/")
        slots.setdefault(int(slot), {})[int(number)] = leaf
    return [slots[slot] for slot in sorted(slots)]


def refuse_other_processes(saved: int, now: int) -> None:
    """UsageError if the number of ranks changed, and nothing says whose rows the states are."""
    if saved != now:
        raise UsageError(
            f"this run carries memory from row to row of several sources and was saved by {saved}"
            f" processes, it cannot go on with {now}\n  fix: train.processes={saved}"
        )
