"""The Compressive Transformer: Transformer-XL whose oldest states are compressed and not forgotten
(Rae et al., 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Unpack

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Number
from plmctl.models.base import Hidden
from plmctl.models.encoder import EncoderParts
from plmctl.models.xlnet import XLNet
from plmctl.nn.cache import Cache
from plmctl.nn.cells.relative_attention import RelativeAttention
from plmctl.nn.compression import Compression, Expansion, attend_to
from plmctl.nn.recorder import NONE, Record
from plmctl.nn.residual import Block
from plmctl.nn.stack import Stack

Rebuilding = Literal["attention", "states"]
TERM = "compression"


class AgedMemory(NamedTuple):
    """The input of each layer in earlier rows, the latest last: compressed states, then states."""

    compressed: tuple[Tensor, ...]  # [B, C, W] each
    recent: tuple[Tensor, ...]  # [B, M, W] each
    filled_compressed: Tensor  # [B] how many of the C are filled, the last ones
    filled_recent: Tensor  # [B] how many of the M are filled; all, where any of the C is

    @property
    def cache(self) -> Cache | None:
        """None: keys and values are computed of the layers, every time."""
        return None

    @property
    def layers(self) -> tuple[Tensor, ...]:
        """[B, C + M, W] each."""
        both = zip(self.compressed, self.recent, strict=True)
        return tuple(torch.cat(parts, 1) for parts in both)

    @property
    def length(self) -> Tensor:
        """[B] how many of the C + M are filled, the last ones."""
        return self.filled_compressed + self.filled_recent

    @property
    def size(self) -> int:
        """C + M."""
        return self.compressed[0].shape[1] + self.recent[0].shape[1]

    @property
    def room(self) -> int:
        """As many."""
        return self.size

    @property
    def streams(self) -> Mapping[str, tuple[Tensor, ...]]:
        """The streams of each layer that attention reads it from."""
        return {"memory": self.layers}

    def resume(self, continues: Tensor) -> AgedMemory:
        """This memory for the next row; rows that do not continue see none of it."""
        goes_on = continues.long()
        return self._replace(
            filled_compressed=self.filled_compressed * goes_on,
            filled_recent=self.filled_recent * goes_on,
        )


@dataclass(frozen=True)
class Updated:
    """Memory after a row, and the error of the compressed states."""

    memory: AgedMemory
    loss: Tensor | None  # [B]


@part_of("model")
class CompressiveTransformer(XLNet):
    """Transformer-XL with memory of two ages. T new states push T old ones out of the last M;
    `compression`, one function for each layer, turns these into T / c states. The last `compressed`
    of these are stored.

    Attention sees compressed states, states and the row, in this order, by the distances of their
    positions: a compressed state counts as one. The compression learns only from a loss of its own,
    and the gradient of that loss reaches nothing else. With `rebuild="attention"` the loss compares
    the outputs of the layer's heads, by content, on the old states and on the compressed ones. It
    is their mean squared difference. With "states" it is the difference between the old states and
    the states that a linear map rebuilds from the compressed ones. It is summed over layers.
    (arXiv:1911.05507, sec. 3; Differs: a mean over tokens and columns instead of a sum.)

    Args:
        memory: M.
        compressed: C.
        compression: makes the function of a layer, which says c.
        rebuild: the loss.
        weight: The weight of the loss.
        max_length: T of full rows.
    """

    holds_cells = True

    def __init__(
        self,
        *,
        stack: Stack,
        compression: Callable[..., Compression],
        memory: Count,
        compressed: Count,
        rebuild: Rebuilding = "attention",
        weight: Number = 1.0,
        clamp_len: Count | None = None,
        max_length: int | None = None,
        **parts: Unpack[EncoderParts],
    ) -> None:
        super().__init__(
            stack=stack, memory=memory, two_streams=False, clamp_len=clamp_len, **parts
        )
        self.compressed, self.rebuild, self.weight = compressed, rebuild, weight
        self.compressions = nn.ModuleList(
            compression(width=self.width) for _ in range(self.num_layers)
        )
        self.rate: int = self.compressions[0].rate  # type: ignore[assignment]
        if max_length is not None and max_length % self.rate:
            allowed = f"a divisor of format.max_length={max_length}"
            nearest = max(n for n in range(1, self.rate) if max_length % n == 0)
            fix = f"model.compression.rate={nearest}"
            raise ConfigError("model.compression.rate", self.rate, allowed, fix=fix)
        self.learns = any(True for _ in self.compressions.parameters())
        self.expansions = nn.ModuleList(
            Expansion(width=self.width, rate=self.rate)
            for _ in range(self.num_layers if self.learns and rebuild == "states" else 0)
        )
        self._attending = [self._find_attention(layer) for layer in range(self.num_layers)]

    @property
    def own_losses(self) -> Mapping[str, float]:
        return {TERM: self.weight} if self.learns else {}

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        hidden = super().encode(x, batch, state, record)
        if not isinstance(hidden.state, Updated):
            return hidden
        loss = hidden.state.loss
        losses = {} if loss is None else {TERM: loss}
        return replace(hidden, state=hidden.state.memory, losses=losses)

    def fresh_state(  # type: ignore[override]
        self, rows: int, device: torch.device, memory: int | None = None
    ) -> AgedMemory | None:
        """Empty memory; `memory`: M, 0 for none at all."""
        plain = super().fresh_state(rows, device, memory)
        if plain is None:
            return None
        empty = plain.layers[0].new_zeros(rows, self.compressed, self.width)
        none = torch.zeros_like(plain.length)
        return AgedMemory((empty,) * self.num_layers, plain.layers, none, plain.length)

    def reading_state(  # type: ignore[override]
        self, rows: int, device: torch.device, memory: int | None = None
    ) -> AgedMemory | None:
        return self.fresh_state(rows, device, memory)

    def _update_memory(  # type: ignore[override]
        self, memory: AgedMemory, layers: list[Tensor], length: int
    ) -> Updated:
        """Memory with the new row; what it pushes out is compressed."""
        room, spare = memory.recent[0].shape[1], length % self.rate
        # how many of the pushed-out states are filled: the last ones
        leaving = (memory.filled_recent + length - room).clamp(min=0, max=length - spare)
        compressed, recent, losses = [], [], []
        old_and_new = zip(memory.compressed, memory.recent, layers, strict=False)
        for layer, (earlier, old, new) in enumerate(old_and_new):
            new = new.detach()
            both = torch.cat([old, new], 1)
            # if a last row is shorter, the oldest states go without a trace
            small, loss = self._compress(layer, both[:, spare:length], new, leaving)
            compressed.append(torch.cat([earlier, small.detach()], 1)[:, -self.compressed :])
            recent.append(both[:, -room:])
            losses += [] if loss is None else [loss]
        count = (memory.filled_compressed + leaving // self.rate).clamp(max=self.compressed)
        filled = (memory.filled_recent + length).clamp(max=room)
        state = AgedMemory(tuple(compressed), tuple(recent), count, filled)
        return Updated(state, torch.stack(losses).sum(0) if losses else None)

    def _compress(
        self, layer: int, old: Tensor, new: Tensor, leaving: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """([B, T / c, W] compressed states of `old [B, T, W]`, [B] the loss); no gradient leaves
        what compresses.
        """
        compress = self.compressions[layer]
        seen, usage = self._see(layer, new, old, leaving)
        small = compress(old, usage)
        if not self.learns or not small.shape[1]:
            return small, None
        if self.rebuild == "states":
            apart = F.mse_loss(self.expansions[layer](small, usage), old, reduction="none")
        else:
            again, _ = self._see(layer, new, small, leaving // self.rate)
            apart = F.mse_loss(again, seen.detach(), reduction="none").mean(1)
        # rows of which nothing real was compressed
        return small, apart.mean((1, 2)) * (leaving >= self.rate)

    def _see(
        self, layer: int, new: Tensor, memory: Tensor, filled: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The outputs of the layer's heads on memory by content, and its usage; weights as they
        are.
        """
        block, cell = self._attending[layer]
        new, memory = (_apply_frozen(block.norm_in, x) for x in (new, memory))
        q, k, v = (
            F.linear(x, weight.detach()).unflatten(-1, (cell.num_heads, -1)).transpose(1, 2)
            for x, weight in zip(
                (new, memory, memory), (cell.q.weight, *cell.kv.weight.chunk(2)), strict=True
            )
        )
        return attend_to(q, k, v, filled)

    def _find_attention(self, layer: int) -> tuple[Block, RelativeAttention]:
        """The block and the cell that read memory."""
        blocks = [self.stack.block(step) for _, step in self.stack.rounds[layer][0]]
        for block in blocks:
            if isinstance(block.cell, RelativeAttention):
                return blocks[0], block.cell
        allowed = "layers that begin with relative attention, whose memory is compressed"
        raise ConfigError("model.stack.layout", ..., allowed, fix="model=xlnet")


def _apply_frozen(norm: nn.Module, x: Tensor) -> Tensor:
    """The norm with its weights as they are: no gradient reaches them."""
    weights: Mapping[str, Tensor] = {k: p.detach() for k, p in norm.named_parameters()}
    normed: Tensor = functional_call(norm, dict(weights), (x,))
    return normed
