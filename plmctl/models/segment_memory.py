"""The memory of a model: states of the segments that it has read (Dai et al., 2019,
arXiv:1901.02860, sec. 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from plmctl.nn.cache import Cache
from plmctl.nn.relations import Relations


class Memory(NamedTuple):
    """The input of each layer in earlier segments, the latest last."""

    layers: tuple[Tensor, ...]  # [B, M, W] each, no gradient flows into them
    length: Tensor  # [B] how many of the M are filled; the others, in front, are never seen

    @property
    def cache(self) -> Cache | None:
        """None: keys and values are computed of the layers, every time."""
        return None

    @property
    def size(self) -> int:
        """M, the tokens that it holds for each row."""
        return self.layers[0].shape[1]

    @property
    def room(self) -> int:
        """The most tokens that it holds: as many."""
        return self.size

    @property
    def streams(self) -> Mapping[str, tuple[Tensor, ...]]:
        """The streams of each layer that attention reads it from."""
        return {"memory": self.layers}

    def resume(self, continues: Tensor) -> Memory:
        """This memory for the next segment.

        Args:
            continues: [B] bool, the rows that go on; the others see none of it.
        """
        return self._replace(length=self.length * continues.long())

    def append(self, layers: Sequence[Tensor], tokens: int, count: int) -> Memory:
        """This memory with the first `count` of `tokens` new rows; the latest that fit are kept.

        Args:
            layers: [B, tokens or more, W] the input of each layer, and the last state.
        """
        inputs = zip(self.layers, layers, strict=False)  # the last state is no layer's input
        kept = tuple(
            torch.cat([old, new[:, :count].detach()], 1)[:, -self.size :] for old, new in inputs
        )
        return Memory(kept, (self.length + count).clamp(max=self.size))


@dataclass(eq=False)
class KeyMemory:
    """`Memory` of a model whose weights stay as they are. Keys and values of each layer are
    computed once, and stored instead of its input. It changes in place.
    """

    cache: Cache
    length: Tensor  # [B] how many of its tokens, the latest, are of the text of a row
    room: int  # the most tokens that it holds
    size: int = 0  # number of tokens that it holds now
    relations: Relations | None = None  # relations of the last segment

    streams: ClassVar[Mapping[str, tuple[Tensor, ...]]] = {}

    def resume(self, continues: Tensor) -> KeyMemory:
        """As of `Memory`."""
        self.length = self.length * continues.long()
        return self

    def append(self, layers: Sequence[Tensor], tokens: int, count: int) -> KeyMemory:
        """As of `Memory`; the new keys are in the cache."""
        for slot in self.cache.slots:
            slot.forget(tokens - count)
            if slot.length > self.room:
                slot.keep_last(self.room)
        self.size = min(self.size + count, self.room)
        self.length = (self.length + count).clamp(max=self.room)
        return self

    def relate(self, rows: int, make: Callable[[], Relations]) -> Relations:
        """The relations of a segment of `rows` tokens, made again only where it differs in size
        from the one before.
        """
        last = self.relations
        if last is None or (last.first, last.rows) != (self.size, rows):
            self.relations = last = make()
        return last


def see(memory: Memory | KeyMemory) -> Tensor:
    """[B, 1, 1, M] bool: which tokens of a memory are seen."""
    places = torch.arange(memory.size, device=memory.length.device)
    return (places >= memory.size - memory.length[:, None])[:, None, None]
