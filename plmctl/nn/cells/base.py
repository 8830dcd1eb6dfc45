"""What every cell is: the computing part of a sublayer, without its norm and residual
connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from plmctl.attention.kernels import Mask
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of
from plmctl.nn.cache import Cache, Slot
from plmctl.nn.positions import Position
from plmctl.nn.recorder import Recorder
from plmctl.nn.relations import Relations


@dataclass(frozen=True)
class Read:
    """What cross-attention reads: the states of another stack, and which of them each token may
    see.
    """

    states: Tensor  # [B, S, W]
    mask: Mask  # [B, 1, T | 1, S]

    def select(self, rows: Tensor) -> Read:
        """The same for these rows of the batch."""
        allowed = self.mask.allowed
        return Read(
            self.states[rows],
            Mask(allowed if allowed is None or len(allowed) == 1 else allowed[rows]),
        )


@dataclass(frozen=True)
class Context:
    """What the cells of one forward pass may read besides their input."""

    mask: Mask  # who may see whom
    position: Position  # how strongly, by place
    places: Tensor  # [B | 1, T] place of every token
    # [B | 1, Tk] of the keys, where they are not just those tokens
    all_places: Tensor | None = None
    source: Read | None = None
    cache: Cache | None = None
    # [B, M, W] for each layer: its input in the segments before
    memory: Sequence[Tensor] | None = None
    # what memory goes through before it is read, as the tokens do (pre-norm)
    norm: nn.Module | None = None
    # only the first so many tokens are seen, the others only look (XLNet's query stream)
    keys: int | None = None
    relations: Relations | None = None  # distances between queries and keys, for relative attention
    recorder: Recorder | None = None  # what self-attention leaves behind
    seq: Seq | None = None  # the tokens themselves, for cells that ask no pattern whom they see
    step: int = 0
    layer: int = 0

    @property
    def key_places(self) -> Tensor:
        """[B | 1, Tk]."""
        return self.places if self.all_places is None else self.all_places

    @property
    def slot(self) -> Slot | None:
        """What this step keeps between calls, where tokens come one by one."""
        return None if self.cache is None else self.cache.slots[self.step]

    @property
    def remembered(self) -> Tensor | None:
        """[B, M, W] the input of this layer in the segments before."""
        found = None if self.memory is None else self.memory[self.layer]
        return found if found is None or self.norm is None else self.norm(found)

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

    def at(self, step: int, layer: int) -> Context:
        """The same for one step of the layout; itself where nothing depends on the step."""
        return (
            self
            if self.cache is None and self.memory is None
            else replace(self, step=step, layer=layer)
        )

    def through(self, norm: nn.Module) -> Context:
        """The same for a cell whose input has gone through `norm`."""
        return (
            self
            if self.memory is None or isinstance(norm, nn.Identity)
            else replace(self, norm=norm)
        )


@dataclass(frozen=True)
class Row:
    """One row, as far as the cost of a cell depends on it."""

    tokens: int  # that run through the cell
    source: int = 0  # that cross-attention reads
    memory: int = 0  # states of the segments before, which relative attention reads
    asked: float = 0.0  # rows of a query stream beside each token


@dataclass(frozen=True)
class Work:
    """What a cell does with one row, forward."""

    macs: float  # multiply-adds with its weights
    # multiply-adds of tokens with each other, of which a causal pattern needs only half
    scores: float = 0.0
    kept: float = 0.0  # numbers that the backward pass needs


@base_of("cells")
class Cell(nn.Module):
    """`forward(x [B, T, W], context) -> [B, T, W]`; `projection` is the last linear map, the one
    that writes to the stream.
    """

    projection: nn.Linear
    # what its multiply-adds are listed as: attention, feed-forward, ...; "": the name of its class
    computes: str = ""
    records: bool = False  # fills `context.recorder`, once each time it runs
    # reads what comes behind a token or only what is before; None: no more than the pattern allows
    ahead: bool | None = None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        raise NotImplementedError(type(self).__name__)

    def work(self, row: Row) -> Work:
        """The cost of a row where every matrix meets every token once, and what linear and
        recurrent maps give is kept.
        """
        macs, kept = 0, 0
        for part in self.modules():
            own: list[Tensor] = list(part.parameters(recurse=False))
            # of a copy that is not trained
            if not own and isinstance(part, nn.Linear | nn.RNNBase):
                own = list(part.buffers(recurse=False))
            macs += sum(p.numel() for p in own if p.dim() > 1)
            if isinstance(part, nn.Linear):
                kept += part.out_features
            if isinstance(part, nn.RNNBase):  # the gates, and the states
                kept += sum(p.numel() + part.hidden_size for p in own if p.dim() == 1) // 2
        rows = (1 + row.asked) * row.tokens
        return Work(rows * macs, kept=rows * kept)


def check_heads(num_heads: int, width: int) -> None:
    """ConfigError where the columns of the stream cannot be shared out among the heads."""
    if width % num_heads:
        fits = [number for number in range(1, width + 1) if width % number == 0]
        nearest = min(fits, key=lambda number: (abs(number - num_heads), -number))
        wider = -(-width // num_heads) * num_heads
        shown = ", ".join(map(str, [*fits[:8], *(["..."] if len(fits) > 8 else [])]))
        fix = f"size.num_heads={nearest}, or size.width={wider}"
        raise ConfigError(
            "size.num_heads", num_heads, f"must divide size.width={width}: {shown}", fix=fix
        )
