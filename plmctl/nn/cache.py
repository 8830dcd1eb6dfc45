"""What a model keeps of the tokens it has read, so that the next ones cost no second reading:
keys, values, states of cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from plmctl.core.batch import Seq

_GROWTH = 2  # buffers double: a token is copied once or twice, however long the text becomes


class Slot:
    """The memory of one step of a layout. A cell uses one of the three ways to keep something.

    `extended(k, v)`: keys and values of all tokens so far, [B, H, M + T, D]. `once(make)`: tensors
    that are computed at the first call only (keys of the source). `kept`: any tensors `[B, ...]`
    that the cell replaces (the state of an LSTM).
    """

    def __init__(self) -> None:
        self.length = 0
        self.buffers: list[Tensor] = []  # [B, H, room, D] each
        self.fixed: tuple[Tensor, ...] | None = None
        self.kept: tuple[Tensor, ...] | None = None

    def extended(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Each of `new [B, H, T, D]` behind what this slot has of it."""
        end = self.length + new[0].shape[2]
        if not self.buffers or end > self.buffers[0].shape[2]:
            self.buffers = [self._larger(place, x, _GROWTH * end) for place, x in enumerate(new)]
        for buffer, x in zip(self.buffers, new, strict=True):
            buffer[:, :, self.length : end] = x
        self.length = end
        return tuple(buffer[:, :, :end] for buffer in self.buffers)

    def _larger(self, place: int, x: Tensor, room: int) -> Tensor:
        made = x.new_empty(*x.shape[:2], room, x.shape[3])
        if self.buffers:
            made[:, :, : self.length] = self.buffers[place][:, :, : self.length]
        return made

    def _only(self, buffer: Tensor, rows: Tensor) -> Tensor:
        made = buffer.new_empty(len(rows), *buffer.shape[1:])
        made[:, :, : self.length] = buffer[:, :, : self.length].index_select(0, rows)
        return made

    def once(self, make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        if self.fixed is None:
            self.fixed = make()
        return self.fixed

    def select(self, rows: Tensor, *, same_source: bool = False, shared: int | None = None) -> None:
        """Go on with these rows [B'] of the batch, in their order (a beam's survivors)."""
        if shared is None:
            self.buffers = [self._only(buffer, rows) for buffer in self.buffers]
        else:
            moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
            for buffer in self.buffers:
                new = buffer[:, :, shared : self.length]
                new[moved] = new[rows[moved]]
        self.kept = None if self.kept is None else tuple(x[rows] for x in self.kept)
        if not same_source:
            self.fixed = None if self.fixed is None else tuple(x[rows] for x in self.fixed)


@dataclass
class Cache:
    """The state of a model that reads on: a slot for every step of its layout, and the tokens that
    the slots hold.

    `forward(batch, state=cache)` reads only the new tokens of its batch and changes the cache in
    place.
    """

    slots: list[Slot]
    seen: Seq | None = None  # all tokens read so far, ids [B, M], with their tracks
    source: Any = None  # a `SourceStates`: what an encoder-decoder's cross-attention reads
    # segments before all of this, of models that have such a state
    memory: tuple[Tensor, ...] = field(default_factory=tuple)

    @classmethod
    def of(cls, steps: int) -> Cache:
        return cls([Slot() for _ in range(steps)])

    @property
    def length(self) -> int:
        return 0 if self.seen is None else self.seen.ids.shape[1]

    def grown(self, new: Seq) -> Seq:
        """`new` behind what was seen; remembered."""
        self.seen = new if self.seen is None else _joined(self.seen, new)
        return self.seen

    def select(self, rows: Tensor, *, same_source: bool = False, shared: int | None = None) -> None:
        """Go on with these rows [B'] of the batch; `same_source`: each takes the place of one with
        the same source.

        `shared`: B' = B, and the first so many tokens of each row are those of the row that it
        replaces: they stay in place.
        """
        for slot in self.slots:
            slot.select(rows, same_source=same_source, shared=shared)
        if self.source is not None and not same_source:
            self.source = self.source.select(rows)
        if self.seen is not None:
            tracks = {name: track[rows] for name, track in self.seen.tracks.items()}
            self.seen = replace(
                self.seen, ids=self.seen.ids[rows], length=self.seen.length[rows], tracks=tracks
            )
        self.memory = tuple(x[:, rows] if x.dim() > 3 else x[rows] for x in self.memory)

    def forget(self, tokens: int) -> None:
        """As if the last `tokens` had not been read (a mask token that was only asked)."""
        for slot in self.slots:
            slot.length = max(0, slot.length - tokens)
        if self.seen is not None and tokens:
            tracks = {name: track[:, :-tokens] for name, track in self.seen.tracks.items()}
            length = (self.seen.length - tokens).clamp(min=0)
            self.seen = replace(
                self.seen, ids=self.seen.ids[:, :-tokens], length=length, tracks=tracks
            )


def _joined(old: Seq, new: Seq) -> Seq:
    """Tracks that only one of the two has are left out: a row of one piece has them all or none."""
    tracks = {
        name: torch.cat([track, new.tracks[name]], 1)
        for name, track in old.tracks.items()
        if name in new.tracks
    }
    return Seq(
        torch.cat([old.ids, new.ids], 1), old.length + new.length, tracks, old.full and new.full
    )
