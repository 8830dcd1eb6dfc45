"""Runs a layout of blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of, part_of
from plmctl.nn import layout as grammar
from plmctl.nn.cells.base import Cell
from plmctl.nn.env import Env, Streams
from plmctl.nn.residual import Block


@base_of("residual")
class Residual(Protocol):
    """How cells become blocks, and what follows the last: `PostNorm`, `PreNorm`, `SandwichNorm`."""

    def block(self, cell: Cell) -> Block: ...
    def final(self) -> nn.Module: ...


@part_of("stack")
class Stack(nn.Module):
    """`final_norm(block_n(... block_1(x)))`, streams to streams, in the order of `layout`
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
        self, streams: Streams, env: Env, *, record: bool = False
    ) -> tuple[Streams, list[Tensor]]:
        """The streams after the last layer, the text normed; and with `record` the text before the
        first layer and after every one (the last one normed).
        """
        recorded = [streams["text"]]
        for number in range(len(self.layers)):
            streams = self.layer(number, streams, env)
            if record:
                recorded.append(streams["text"])
        streams = streams.updated("text", self.final_norm(streams["text"]))
        return streams, [*recorded[:-1], streams["text"]] if record else []

    def layer(self, number: int, streams: Streams, env: Env) -> Streams:
        """The streams after one layer, from those before it."""
        x = env.ops["text"].position.every_step(streams["text"], number)
        streams = streams.at(number).updated("text", x)
        for place, step in self.layers[number]:
            streams = self.blocks[step.letter][step.copy](streams, env.at(place))  # type: ignore[index]
        return streams
