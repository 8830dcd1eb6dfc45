"""The input of cells: the streams that they read and write, and their environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.core.batch import Seq
from plmctl.nn.cache import Cache, Slot, stack_padded
from plmctl.nn.recorder import Recorder

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Streams:
    """Named tensors [B, T, W] that the cells of a stack read and write; never changed in place.

    `text` is what a model computes. `source` holds the states that cross-attention reads, and
    `memory` the input of a layer in earlier segments. If tokens halt (nn/halting.py), `ponder` [B,
    T, 2] holds the layers of each token and its remainder, 0 at padding. A model may add its own
    streams.
    """

    tensors: Mapping[str, Tensor]
    # streams with a tensor for each layer: name -> one tensor a layer
    by_layer: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def get(self, name: str) -> Tensor | None:
        """The stream of this name, or None."""
        return self.tensors.get(name)

    def replace(self, name: str, tensor: Tensor) -> Streams:
        """These streams with another tensor for one of them."""
        return _alter(self, tensors={**self.tensors, name: tensor})

    def at(self, layer: int) -> Streams:
        """These streams for one layer, with the layer's own streams among them."""
        if not self.by_layer:
            return self
        own = {name: tensors[layer] for name, tensors in self.by_layer.items()}
        return replace(self, tensors={**self.tensors, **own})


@dataclass(frozen=True, eq=False)
class Env:
    """The environment of the cells in one forward pass; read-only."""

    # attention by the stream whose tokens are its keys: "text" to itself, "source" from the text
    ops: Mapping[str, BoundOp]
    # operators from the text to itself by layer, if layers differ; `ops` has that of the first
    by_layer: Sequence[BoundOp] = ()
    seq: Seq | None = None  # the tokens, for cells that use no pattern
    cache: Cache | None = None
    recorder: Recorder | None = None  # records self-attention
    step: int = 0  # the step of the layout
    # values that cells store for a second run of the forward pass, by step; None: no second run
    remembered: dict[int, Tensor] | None = None
    inside: tuple[str, ...] = ()  # the parts of the cell that run, the outer one first
    # [B] how many states of the stream `memory` are real, the last ones; None: no memory
    filled: Tensor | None = None
    # values of this pass that parts of cells note for their penalties (nn/restrained.py)
    notes: dict[nn.Module, list[Tensor]] = field(default_factory=dict)

    @property
    def slot(self) -> Slot | None:
        """The cache of this step, or of a part of its cell, if tokens come one by one."""
        if self.cache is None:
            return None
        slot = self.cache.slots[self.step]
        for name in self.inside:
            slot = slot.part(name)
        return slot

    @property
    def real(self) -> Tensor | None:
        """[B, T] bool: the tokens that are no padding; None: all of them."""
        return None if self.seq is None or self.seq.full else self.seq.real

    @property
    def documents(self) -> Tensor | None:
        """[B, T] number of each token's document, -1 at padding; None if every row is one document
        without padding. A token that is `tracks.alone` has a number of its own: it has no
        neighbours, though attention may see others of its document.
        """
        return _number_documents(self.seq)

    @property
    def all_documents(self) -> Tensor | None:
        """`documents` of all tokens in the cache, [B, M + T]; of these tokens without a cache."""
        seen = None if self.cache is None else self.cache.seen
        return self.documents if seen is None else _number_documents(seen)

    def remember(self, compute: Callable[[], Tensor]) -> Tensor:
        """The result of `compute`, computed once a step. The second run of a forward pass has the
        same result, though its input may differ by rounding.
        """
        if self.remembered is None:
            return compute()
        if self.step not in self.remembered:
            self.remembered[self.step] = compute()
        return self.remembered[self.step]

    def note(self, part: nn.Module, tensor: Tensor) -> None:
        """Keep what a part states of this pass."""
        self.notes.setdefault(part, []).append(tensor)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """[B, H, M + T, D] each: the cached keys and values of this step, and these."""
        if self.slot is None:
            return k, v
        k, v = self.slot.extend(k, v)
        return k, v

    def at(self, step: int, layer: int) -> Env:
        """This environment for one step of the layout; itself if nothing depends on the step."""
        same = self.cache is None and self.remembered is None
        if not self.by_layer:
            return self if same else _alter(self, step=step)
        return _alter(self, step=step, ops={**self.ops, "text": self.by_layer[layer]})

    def enter(self, name: str) -> Env:
        """This environment for a part of the cell, which has a cache of its own."""
        return self if self.cache is None else replace(self, inside=(*self.inside, name))

    def without_cache(self) -> Env:
        """This environment without cache and recorder."""
        return _alter(self, cache=None, recorder=None)


def _alter(value: Made, **fields: Any) -> Made:
    """`dataclasses.replace` in a fraction of its time, which counts in a step of one token."""
    if torch.compiler.is_compiling():
        return replace(value, **fields)  # type: ignore[type-var]
    made = object.__new__(type(value))
    vars(made).update(vars(value))
    vars(made).update(fields)
    return made


def _number_documents(seq: Seq | None) -> Tensor | None:
    if seq is None or (seq.full and not {"document", "alone"} & seq.tracks.keys()):
        return None
    documents = seq.tracks.get("document", torch.zeros_like(seq.ids))
    if (alone := seq.tracks.get("alone")) is not None:
        length = seq.ids.shape[1]  # more than there are documents
        own = torch.arange(length, 2 * length, device=documents.device, dtype=documents.dtype)
        documents = torch.where(alone, own, documents)
    return torch.where(seq.real, documents, -1)


@dataclass(frozen=True, eq=False)
class SourceStates:
    """The states of another stack for cross-attention, with their operator."""

    states: Tensor  # [B, S, W]
    op: BoundOp

    def select(self, rows: Tensor) -> SourceStates:
        """The states of these rows of the batch."""
        plan = self.op.plan
        assert isinstance(plan, Mask)
        return SourceStates(self.states[rows], replace(self.op, plan=plan.select(rows)))

    def join(self, other: SourceStates) -> SourceStates:
        """These states and those of other rows; the shorter ones are padded at the end."""
        seen = stack_padded(self._list_visible(), other._list_visible(), axis=-1)
        longer = max(self, other, key=lambda each: each.states.shape[1])
        op = replace(longer.op, plan=Mask(seen))
        return SourceStates(stack_padded(self.states, other.states), op)

    def _list_visible(self) -> Tensor:
        """[B, 1, 1, S] bool: the states of each row that every query sees."""
        (rows, size), plan = self.states.shape[:2], self.op.plan
        assert isinstance(plan, Mask)
        if plan.mask is None:
            return self.states.new_ones(rows, 1, 1, size, dtype=torch.bool)
        return plan.mask.expand(rows, -1, -1, -1)
