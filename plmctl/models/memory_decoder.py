"""A decoder whose layers remember their input of earlier rows, each as much as its cells see
(Sukhbaatar et al., 2019, arXiv:1905.07799).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Whole
from plmctl.models.base import Hidden
from plmctl.models.encoder import Encoder, EncoderParts, refuse_halting
from plmctl.nn.cells.base import Cell, Spanning
from plmctl.nn.recorder import NONE, Record
from plmctl.nn.stack import Stack

_SPARE = 64  # tokens that a layer remembers beyond its span, since spans may grow


class RowMemory(NamedTuple):
    """The input of each layer in earlier rows, the latest last."""

    layers: tuple[Tensor, ...]  # [B, M, W] each, M by layer; no gradient flows into them
    length: Tensor  # [B] tokens that were read before
    room: int  # the largest M


@part_of("model")
class MemoryDecoder(Encoder):
    """An encoder under a causal pattern whose cells also read the stream `memory`. It holds the
    input of their layer in earlier rows, which the row continues (`values.continues`).

    State: of each layer as many tokens as its cells see at the moment and a few more, at most
    `memory`, without gradient; it begins empty. A row that does not continue sees none. Cells see
    tokens in the row and in memory by their distance alone.

    Args:
        memory: the most tokens that a layer remembers; None: as many as a cell can ever see.
        max_length: The longest row.
    """

    def __init__(
        self,
        *,
        stack: Stack,
        memory: Whole | None = None,
        max_length: int | None = None,
        **parts: Unpack[EncoderParts],
    ) -> None:
        super().__init__(stack=stack, **parts)
        self.memory = _settle_memory(stack, memory, max_length)
        if self.memory:
            self.needs |= {"values.continues"}

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        if not isinstance(state, RowMemory):
            return super().encode(x, batch, state, record)
        continues = batch.require("values.continues").to(state.length)
        memory = state._replace(length=state.length * continues)
        hidden = self.read(batch.text, x, memory=memory, record=record | {"hidden"})
        recorded = {k: v for k, v in hidden.recorded.items() if k != "hidden" or k in record}
        kept = self._update(memory, hidden.recorded["hidden"])
        return replace(hidden, recorded=recorded, state=kept)

    def fresh_state(
        self, rows: int, device: torch.device, memory: int | None = None
    ) -> RowMemory | None:
        room = self.memory if memory is None else memory
        if not room:
            return None
        kind = next(self.stack.parameters()).dtype
        empty = torch.zeros(rows, 0, self.width, device=device, dtype=kind)
        length = torch.zeros(rows, dtype=torch.int64, device=device)
        return RowMemory((empty,) * self.num_layers, length, room)

    def _update(self, memory: RowMemory, layers: list[Tensor]) -> RowMemory:
        """Memory with the input of each layer appended; the latest that may be seen are kept."""
        kept = []
        # the last state is no layer's input
        for number, (old, new) in enumerate(zip(memory.layers, layers, strict=False)):
            cells = _reading_cells(self.stack, number)
            reaches = [
                cell.looks_back() if isinstance(cell, Spanning) else cell.facts.longest
                for cell in cells
            ]
            known = [reach + _SPARE for reach in reaches if reach is not None]
            room = memory.room if len(known) < len(cells) else max(known, default=0)
            both = torch.cat([old, new.detach()], 1)
            kept.append(both[:, max(0, both.shape[1] - min(room, memory.room)) :])
        length = memory.length + layers[0].shape[1]
        return RowMemory(tuple(kept), length, memory.room)


def _reading_cells(stack: Stack, layer: int) -> list[Cell]:
    """The cells of a layer that read memory."""
    cells = [stack.block(step).cell for steps in stack.rounds[layer] for _, step in steps]
    return [cell for cell in cells if "memory" in cell.facts.reads]


def _settle_memory(stack: Stack, memory: int | None, max_length: int | None) -> int:
    """The most tokens of a layer's memory; ConfigError if the cells cannot read them, or can look
    back farther.
    """
    by_letter = {step.letter: stack.block(step).cell for step in stack.steps}
    reading = {k: cell for k, cell in by_letter.items() if "memory" in cell.facts.reads}
    longest = {k: cell.facts.longest for k, cell in reading.items()}
    spans = {k: span for k, span in longest.items() if span is not None}
    if memory is None:
        memory = max(spans.values(), default=0)
    if memory:
        _check_layers(stack, reading)
    for letter, span in spans.items():
        if max_length is not None and span > memory + max_length:
            path = f"model.stack.cells.{letter}.span"
            allowed = f"at most {memory + max_length}, the tokens of memory and row together"
            raise ConfigError(path, span, allowed, fix=f"model.memory={span}")
    return memory


def _check_layers(stack: Stack, reading: Mapping[str, Cell]) -> None:
    """Raise ConfigError unless memory is what the cells that read it would see."""
    if not reading:
        allowed = "0: no cell of this layout reads it"
        raise ConfigError("model.memory", ..., allowed, fix="model.memory=0")
    if stack.reversible:
        allowed = "false: memory is the input of a layer, and a layer here has two"
        raise ConfigError("model.stack.reversible", True, allowed, fix="model.memory=0")
    refuse_halting(stack, "memory is of every layer")
    for letter in _later_letters(stack):
        if letter in reading:
            allowed = f"each group beginning with '{letter}', because memory is a layer's input"
            raise ConfigError("model.stack.layout", letter, allowed, fix="model.memory=0")


def _later_letters(stack: Stack) -> Iterator[str]:
    """The letters that are not first in some layer."""
    for layer in stack.rounds:
        for steps in layer[1:]:
            yield from (step.letter for _, step in steps)
