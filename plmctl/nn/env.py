"""What cells work on: the streams that they read and write, and the surroundings that they use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.core.batch import Seq
from plmctl.nn.cache import Cache, Slot
from plmctl.nn.recorder import Recorder


@dataclass(frozen=True, eq=False)
class Streams:
    """Named tensors [B, T, W] that the cells of a stack read and write; never changed in place.

    `text` is what a model computes. `source` holds the states that cross-attention reads, `memory`
    what a layer read of the segments before. A model may add streams of its own.
    """

    tensors: Mapping[str, Tensor]
    # streams of which each layer reads its own: name -> one tensor a layer
    by_layer: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def get(self, name: str) -> Tensor | None:
        return self.tensors.get(name)

    def updated(self, name: str, tensor: Tensor) -> Streams:
        """The same with another tensor for one of the streams."""
        return replace(self, tensors={**self.tensors, name: tensor})

    def at(self, layer: int) -> Streams:
        """The same for one layer, whose own streams stand among the others."""
        if not self.by_layer:
            return self
        own = {name: tensors[layer] for name, tensors in self.by_layer.items()}
        return replace(self, tensors={**self.tensors, **own})


@dataclass(frozen=True, eq=False)
class Env:
    """What the cells of one forward pass use besides their streams; read-only."""

    # attention by the stream whose tokens are its keys: "text" to itself, "source" from the text
    ops: Mapping[str, BoundOp]
    seq: Seq | None = None  # the tokens themselves, for cells that ask no pattern whom they see
    cache: Cache | None = None
    recorder: Recorder | None = None  # what self-attention leaves behind
    step: int = 0  # of the layout

    @property
    def slot(self) -> Slot | None:
        """What this step keeps between calls, where tokens come one by one."""
        return None if self.cache is None else self.cache.slots[self.step]

    @property
    def documents(self) -> Tensor | None:
        """[B, T] number of each token's document, -1 at padding; None where every row is one
        document without padding.
        """
        if self.seq is None or (self.seq.full and "document" not in self.seq.tracks):
            return None
        return torch.where(
            self.seq.real, self.seq.tracks.get("document", torch.zeros_like(self.seq.ids)), -1
        )

    def extended(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """[B, H, M + T, D] each: the keys and values that this step keeps, and these."""
        if self.slot is None:
            return k, v
        k, v = self.slot.extended(k, v)
        return k, v

    def at(self, step: int) -> Env:
        """The same for one step of the layout; itself where nothing depends on the step."""
        return self if self.cache is None else replace(self, step=step)

    def apart(self) -> Env:
        """The same without what self-attention keeps and records."""
        return replace(self, cache=None, recorder=None)


@dataclass(frozen=True, eq=False)
class SourceStates:
    """What cross-attention reads: the states of another stack, and how."""

    states: Tensor  # [B, S, W]
    op: BoundOp

    def select(self, rows: Tensor) -> SourceStates:
        """The same for these rows of the batch."""
        plan = self.op.plan
        assert isinstance(plan, Mask)
        return SourceStates(self.states[rows], replace(self.op, plan=plan.select(rows)))
