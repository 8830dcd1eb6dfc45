"""The recurrent state (Transformer-XL memory, LSTM h and c) of each micro-batch of a source: kept
here, detached, saved leaf by leaf. The first dimension of a leaf is that of rows.
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

Slot = tuple[str, int]  # a source, and the number of a micro-batch among its own
UNNAMED = ""  # the source of states of before, which were saved without one


class CarriedStates:
    """One state for each micro-batch of each source of this rank; None for models without memory.

    The micro-batches of a source in one update are numbered. Each goes on with the rows of its
    number in the next update of the source.
    """

    def __init__(self, backbone: Backbone, device: torch.device) -> None:
        self._backbone, self._device = backbone, device
        self._slots: dict[Slot, Any] = {}
        # {source: leaves that were loaded, of later slots}
        self._rest: dict[str, dict[int, Tensor]] = {}

    def before(self, slot: Slot, rows: int) -> Any:
        """The state with which to read `rows` streams: that of the slot, or a fresh one."""
        if slot in self._slots:
            return self._slots[slot]
        for source in (slot[0], UNNAMED):
            if source in self._rest:
                return self._take(source, rows)
        return start_memory(self._backbone, rows, self._device)

    def keep(self, slot: Slot, state: Any) -> None:
        """Keep the state that the objective returned, detached from its graph."""
        if state is not None:
            self._slots[slot] = tree.tree_map_only(Tensor, Tensor.detach, state)

    def clear(self) -> None:
        """Forget all states, at the beginning of a stage."""
        self._slots, self._rest = {}, {}

    def tensors(self) -> dict[str, Tensor]:
        """{"<source>/<slot>/<leaf>": tensor}."""
        return {
            f"{source}/{slot}/{number}": leaf
            for (source, slot), state in self._slots.items()
            for number, leaf in enumerate(tree.tree_leaves(state))
            if isinstance(leaf, Tensor)
        }

    def load(
        self, ranks: Sequence[Mapping[str, Tensor]], share: Callable[[int], slice] | None = None
    ) -> None:
        """Restore what `tensors` gave: the rows of all slots of a source, one behind the other, cut
        anew as micro-batches come.

        Args:
            ranks: The results of `tensors`, of this process, or of all in their order.
            share: (the number of all rows) -> those of this process; None: all.
        """
        self.clear()
        sources: dict[str, list[dict[int, Tensor]]] = {}
        for tensors in ranks:
            for source, leaves in _list_slots(tensors):
                sources.setdefault(source, []).append(leaves)
        for source, slots in sources.items():
            joined = {n: torch.cat([leaves[n] for leaves in slots]) for n in slots[0]}
            own = slice(None) if share is None else share(len(next(iter(joined.values()))))
            self._rest[source] = {n: leaf[own].to(self._device) for n, leaf in joined.items()}

    def _take(self, source: str, rows: int) -> Any:
        """The next `rows` of the rows of a source that were loaded."""
        some = {number: leaf[:rows] for number, leaf in self._rest[source].items()}
        self._rest[source] = {number: leaf[rows:] for number, leaf in self._rest[source].items()}
        if len(next(iter(some.values()))) != rows:
            raise UsageError(
                "this run carries memory from row to row, and an update has more rows than before\n"
                "  fix: leave train.batch_size out"
            )
        leaves, shape = tree.tree_flatten(start_memory(self._backbone, rows, self._device))
        return tree.tree_unflatten([some.get(i, leaf) for i, leaf in enumerate(leaves)], shape)


def _list_slots(tensors: Mapping[str, Tensor]) -> list[tuple[str, dict[int, Tensor]]]:
    """(source, {number of a leaf: it}) of each slot, in their order."""
    slots: dict[Slot, dict[int, Tensor]] = {}
    for key, leaf in tensors.items():
        *source, slot, number = key.rsplit("/", 2)
        slots.setdefault(("".join(source) or UNNAMED, int(slot)), {})[int(number)] = leaf
    return [(slot[0], slots[slot]) for slot in sorted(slots)]


def refuse_unnamed(ranks: Sequence[Mapping[str, Tensor]], saved: int, now: int) -> None:
    """UsageError for states of several sources that were saved without their names, where the
    number of ranks changed.
    """
    if any(source == UNNAMED for tensors in ranks for source, _ in _list_slots(tensors)):
        raise UsageError(
            "this run carries memory from row to row of several sources, an earlier plmctl saved"
            f" it with {saved} processes, and it cannot go on with {now}"
            f"\n  fix: train.processes={saved}"
        )
