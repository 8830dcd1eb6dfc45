"""Runs a layout of blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor, nn

from plmctl.errors import ConfigError
from plmctl.nn import layout as grammar
from plmctl.nn.cells.base import Cell, Context
from plmctl.nn.residual import Block


class Residual(Protocol):
    """How cells become blocks, and what follows the last: `PostNorm`, `PreNorm`, `SandwichNorm`."""

    def block(self, cell: Cell) -> Block: ...
    def final(self) -> nn.Module: ...


class Stack(nn.Module):
    """`final_norm(block_n(... block_1(x)))`, [B, T, W] -> [B, T, W], in the order of `layout` (grammar: nn/layout.py).

    `cells` maps each letter of the layout to a factory. Parameters are named by letter and ordinal: `blocks.a.0`, `blocks.f.0`.
    """

    def __init__(
        self, *, layout: str, cells: Mapping[str, Callable[[], Cell]], residual: Residual,
        share: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.steps = grammar.parse(layout, share=share)
        copies = grammar.copies(self.steps)
        for letter in copies:
            if letter not in cells:
                raise ConfigError("model.stack.layout", layout, f"'{letter}' is none of the cells: {', '.join(cells)}")
        self.blocks = nn.ModuleDict(
            {letter: nn.ModuleList(residual.block(cells[letter]()) for _ in range(n)) for letter, n in copies.items()}
        )
        self.final_norm = residual.final()

    @property
    def num_layers(self) -> int:
        return sum(step.ends for step in self.steps)

    def forward(self, x: Tensor, context: Context, *, record: bool = False) -> tuple[Tensor, list[Tensor]]:
        """The last state, and with `record` the input followed by the state after every layer (the last one normed)."""
        recorded = [x]
        layer, begins = 0, True
        for number, step in enumerate(self.steps):
            if begins:
                x = context.position.every_step(x, layer)
            x = self.blocks[step.letter][step.copy](x, context.at(number, layer))  # type: ignore[index]
            begins = step.ends
            if step.ends:
                layer += 1
                if record:
                    recorded.append(x)
        x = self.final_norm(x)
        return x, [*recorded[:-1], x] if record else []
