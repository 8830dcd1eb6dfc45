"""Runs a layout of blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of, part_of
from plmctl.nn import layout as grammar
from plmctl.nn.cells.base import Cell, Context
from plmctl.nn.residual import Block


@base_of("residual")
class Residual(Protocol):
    """How cells become blocks, and what follows the last: `PostNorm`, `PreNorm`, `SandwichNorm`."""

    def block(self, cell: Cell) -> Block: ...
    def final(self) -> nn.Module: ...


@part_of("stack")
class Stack(nn.Module):
    """`final_norm(block_n(... block_1(x)))`, [B, T, W] -> [B, T, W], in the order of `layout`
    (grammar: nn/layout.py).

    `cells` maps each letter of the layout to a factory. Parameters are named by letter and ordinal:
    `blocks.a.0`, `blocks.f.0`.
    """

    def __init__(
        self,
        *,
        layout: str,
        cells: Mapping[str, Callable[[], Cell]],
        residual: Residual,
        share: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.steps = grammar.parse(layout, share=share)
        self.layers = grammar.layers(self.steps)
        copies = grammar.copies(self.steps)
        for letter in copies:
            if letter not in cells:
                raise ConfigError(
                    "model.stack.layout",
                    layout,
                    f"'{letter}' is none of the cells: {', '.join(cells)}",
                )
        self.blocks = nn.ModuleDict(
            {
                letter: nn.ModuleList(residual.block(cells[letter]()) for _ in range(n))
                for letter, n in copies.items()
            }
        )
        self.final_norm = residual.final()

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def records(self) -> bool:
        """Whether each layer has just one cell of self-attention that can be recorded."""
        found = [0]
        for step in self.steps:
            found[-1] += self.blocks[step.letter][step.copy].cell.records  # type: ignore[index, union-attr]
            found += [0] * step.ends
        return set(found[:-1]) == {1}

    def forward(
        self, x: Tensor, context: Context, *, record: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """The last state, and with `record` the input followed by the state after every layer
        (the last one normed).
        """
        recorded = [x]
        for number in range(len(self.layers)):
            x = self.layer(number, x, context)
            if record:
                recorded.append(x)
        x = self.final_norm(x)
        return x, [*recorded[:-1], x] if record else []

    def layer(self, number: int, x: Tensor, context: Context) -> Tensor:
        """[B, T, W] the state after one layer, from the one before it."""
        x = context.position.every_step(x, number)
        for place, step in self.layers[number]:
            x = self.blocks[step.letter][step.copy](x, context.at(place, number))  # type: ignore[index]
        return x
