"""The cache of a model that reads token by token: keys, values, states of cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Seq

# buffers without a known room double in size: each token is copied at most about twice
_GROWTH = 2


class Slot:
    """The cache of one step of a layout. A cell uses one of three ways to keep something.

    `extend(k, v)`: keys and values of all tokens so far, [B, H, M + T, D]. `once(make)`: tensors
    that are computed at the first call only (keys of the source). `kept`: any tensors `[B, ...]`
    that the cell replaces (the state of an LSTM). Parts of a cell may have slots of their own.
    """

    def __init__(self, room: int = 0) -> None:
        self.length = 0
        self.room = room  # tokens that will come, as far as known
        self.buffers: list[Tensor] = []  # [B, H, room, D] each
        self.fixed: tuple[Tensor, ...] | None = None
        self.by_source, self.copies = False, 1  # rows of the batch for each row of `fixed`
        self.kept: tuple[Tensor, ...] | None = None
        self.derived: tuple[Tensor, Tensor] | None = None
        self.parts: dict[str, Slot] = {}

    def part(self, name: str) -> Slot:
        """The slot of a part of the cell."""
        return self.parts.setdefault(name, Slot(self.room))

    def extend(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Append each of `new [B, H, T, D]` to its buffer, and return all of it."""
        end = self.length + new[0].shape[2]
        if not self.buffers or end > self.buffers[0].shape[2]:
            room = self.room if end <= self.room else _GROWTH * end
            self.buffers = [self._grow(index, x, room) for index, x in enumerate(new)]
        for buffer, x in zip(self.buffers, new, strict=True):
            buffer[:, :, self.length : end] = x
        self.length = end
        return tuple(buffer[:, :, :end] for buffer in self.buffers)

    def _grow(self, index: int, x: Tensor, room: int) -> Tensor:
        buffer = x.new_empty(*x.shape[:2], room, x.shape[3])
        if self.buffers:
            buffer[:, :, : self.length] = self.buffers[index][:, :, : self.length]
        return buffer

    def _select_rows(self, buffer: Tensor, rows: Tensor) -> Tensor:
        selected = buffer.new_empty(len(rows), *buffer.shape[1:])
        selected[:, :, : self.length] = buffer[:, :, : self.length].index_select(0, rows)
        return selected

    def keep_last(self, tokens: int) -> None:
        """Forget keys and values of all but the last `tokens`."""
        for buffer in self.buffers:
            buffer[:, :, :tokens] = buffer[:, :, self.length - tokens : self.length].clone()
        self.length = min(self.length, tokens)
        for part in self.parts.values():
            part.keep_last(tokens)

    def once(
        self, make: Callable[[], tuple[Tensor, ...]], *, by_source: bool = False
    ) -> tuple[Tensor, ...]:
        """The tensors of the first call of `make`. With `by_source`, neighbours in the batch that
        come from one row share its tensors: the beams of a prompt do not copy them.
        """
        if self.fixed is None:
            self.fixed, self.by_source = make(), by_source
        return self.fixed

    def derive(self, source: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """The result of `compute` for `source`, a tensor for all rows; computed again only for
        another `source`.
        """
        if self.derived is None or self.derived[0] is not source:
            self.derived = source, compute(source)
        return self.derived[1]

    def select(self, rows: Tensor, *, same_source: bool = False, shared: int | None = None) -> None:
        """Continue with these rows [B'] of the batch, in this order (the beams that are kept)."""
        if shared is None:
            self.buffers = [self._select_rows(buffer, rows) for buffer in self.buffers]
        else:
            moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
            for buffer in self.buffers:
                new = buffer[:, :, shared : self.length]
                new[moved] = new[rows[moved]]
        self.kept = None if self.kept is None else tuple(x[rows] for x in self.kept)
        if not same_source and self.fixed is not None:
            self._select_fixed(rows)
        for part in self.parts.values():
            part.select(rows, same_source=same_source, shared=shared)

    def _select_fixed(self, rows: Tensor) -> None:
        assert self.fixed is not None
        rows, copies = rows // self.copies, 1
        if self.by_source and len(rows):
            sources, counts = torch.unique_consecutive(rows, return_counts=True)
            if bool((counts == counts[0]).all()):
                rows, copies = sources, int(counts[0])
        self.copies = copies
        if not torch.equal(rows, torch.arange(len(self.fixed[0]), device=rows.device)):
            self.fixed = tuple(x[rows] for x in self.fixed)

    def _spread_fixed(self) -> tuple[Tensor, ...] | None:
        """The fixed tensors with a row for each one of the batch."""
        if self.fixed is None or self.copies == 1:
            return self.fixed
        return tuple(x.repeat_interleave(self.copies, 0) for x in self.fixed)

    def join(self, other: Slot) -> None:
        """Append the rows of another slot; the last tokens of both stand in the last column."""
        length = max(self.length, other.length)
        both = zip(self.buffers, other.buffers, strict=True)
        self.buffers = [self._stack(own, new, other.length, length) for own, new in both]
        self.length = length
        own, new = self._spread_fixed(), other._spread_fixed()
        if own is not None and new is not None:
            self.fixed, self.copies = tuple(map(stack_padded, own, new)), 1

    def _stack(self, own: Tensor, new: Tensor, tokens: int, length: int) -> Tensor:
        """[B + B', H, room, D] the rows of two buffers, whose new one holds so many `tokens`."""
        rows, room = len(own), max(own.shape[2], new.shape[2], length)
        buffer = own.new_zeros(rows + len(new), own.shape[1], room, own.shape[3])
        buffer[:rows, :, length - self.length : length] = own[:, :, : self.length]
        buffer[rows:, :, length - tokens : length] = new[:, :, :tokens]
        return buffer

    @property
    def holds_states(self) -> bool:
        """Whether a cell keeps states that each token replaces, so that none can be undone."""
        return self.kept is not None or any(part.holds_states for part in self.parts.values())

    def forget(self, tokens: int) -> None:
        """Undo the last `tokens` of the keys and values."""
        self.length = max(0, self.length - tokens)
        for part in self.parts.values():
            part.forget(tokens)


@dataclass
class Cache:
    """The state of a model that reads token by token: a slot for every step of its layout, and the
    tokens in the slots.

    `forward(batch, state=cache)` reads only the new tokens of its batch and changes the cache in
    place.
    """

    slots: list[Slot]
    seen: Seq | None = None  # all tokens read so far, ids [B, M], with their tracks
    source: Any = None  # a `SourceStates` for the cross-attention of an encoder-decoder
    # the states of earlier segments, in models with such a memory
    memory: tuple[Tensor, ...] = field(default_factory=tuple)
    dropped: int = 0  # tokens before those in the slots, which nobody sees any more

    @classmethod
    def of(cls, steps: int) -> Cache:
        """An empty cache for so many steps."""
        return cls([Slot() for _ in range(steps)])

    def reserve(self, tokens: int) -> None:
        """Let every buffer have room for so many tokens from the start."""
        for slot in self.slots:
            slot.room = tokens

    @property
    def joins(self) -> bool:
        """Whether rows can be appended: all that it keeps are keys and values of tokens."""
        return not self.memory and not any(s.holds_states or s.parts for s in self.slots)

    def join(self, other: Cache) -> None:
        """Append the rows of another cache, whose tokens stand at the right, as those here do:
        padding fills the left. Both have the tracks `real` and `position`.
        """
        assert self.seen is not None
        assert other.seen is not None
        for own, new in zip(self.slots, other.slots, strict=True):
            own.join(new)
        if self.source is not None:
            self.source = self.source.join(other.source)
        self.seen = _stack(self.seen, other.seen)

    def trim(self) -> None:
        """Forget the columns at the left in which every row has padding."""
        assert self.seen is not None
        if surplus := int(self.seen.real.any(0).nonzero()[0]):
            self.keep_last(self.length - surplus)

    @property
    def length(self) -> int:
        """The number of tokens read so far."""
        return 0 if self.seen is None else self.seen.ids.shape[1]

    def extend(self, new: Seq) -> Seq:
        """Append the tokens `new`, and return all tokens."""
        self.seen = new if self.seen is None else _join(self.seen, new)
        return self.seen

    def select(self, rows: Tensor, *, same_source: bool = False, shared: int | None = None) -> None:
        """Continue with these rows [B'] of the batch.

        Args:
            same_source: each row replaces one with the same source.
            shared: None, or the number of first tokens of each row that equal those of the row that
                it replaces. They are not copied, and B' = B.
        """
        shared = None if shared is None else max(0, shared - self.dropped)
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

    def keep_last(self, tokens: int) -> None:
        """Forget all but the last `tokens`."""
        surplus = self.length - tokens
        if self.seen is None or surplus <= 0:
            return
        for slot in self.slots:
            slot.keep_last(tokens)
        real = self.seen.real[:, surplus:].sum(1)
        tracks = {name: track[:, surplus:] for name, track in self.seen.tracks.items()}
        self.seen = replace(self.seen, ids=self.seen.ids[:, surplus:], length=real, tracks=tracks)
        self.dropped += surplus

    def forget(self, tokens: int) -> None:
        """Undo the reading of the last `tokens` (such as a mask token that was only predicted)."""
        for slot in self.slots:
            slot.forget(tokens)
        if self.seen is not None and tokens:
            tracks = {name: track[:, :-tokens] for name, track in self.seen.tracks.items()}
            length = (self.seen.length - tokens).clamp(min=0)
            self.seen = replace(
                self.seen, ids=self.seen.ids[:, :-tokens], length=length, tracks=tracks
            )


def stack_padded(one: Tensor, other: Tensor, axis: int = -2) -> Tensor:
    """The rows of both; the shorter `axis` is filled with zeros at its end."""
    length = max(one.shape[axis], other.shape[axis])

    def fill(x: Tensor) -> Tensor:
        behind = [0, 0] * (-1 - axis)
        return F.pad(x, (*behind, 0, length - x.shape[axis]))

    return torch.cat([fill(one), fill(other)])


def _stack(one: Seq, other: Seq) -> Seq:
    """The rows of both, with padding at the left of the shorter ones."""
    length = max(one.ids.shape[1], other.ids.shape[1])

    def stack(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([F.pad(z, (length - z.shape[1], 0)) for z in (x, y)])

    tracks = {name: stack(track, other.tracks[name]) for name, track in one.tracks.items()}
    return Seq(stack(one.ids, other.ids), torch.cat([one.length, other.length]), tracks)


def _join(old: Seq, new: Seq) -> Seq:
    """Both sequences as one; tracks that only one of them has are left out."""
    tracks = {
        name: torch.cat([track, new.tracks[name]], 1)
        for name, track in old.tracks.items()
        if name in new.tracks
    }
    return Seq(
        torch.cat([old.ids, new.ids], 1), old.length + new.length, tracks, old.full and new.full
    )
