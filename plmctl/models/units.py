"""Units of cells that work alone: heads of attention and neurons of feed-forward cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from plmctl.nn.cells.base import Cell
from plmctl.nn.cells.feedforward import PositionWise
from plmctl.nn.residual import Block
from plmctl.nn.stack import Stack

HEADS, NEURONS = "num_heads", "inner_width"  # the settings of cells that count their units


@dataclass(frozen=True)
class CellUnits:
    """The units of a cell: unit i writes the columns `[i width, (i + 1) width)` that the last map
    of the cell reads.

    A gate on a unit is a factor of these columns: with 0, the unit adds nothing (Michel et al.,
    2019, arXiv:1905.10650, sec. 2.2).
    """

    output: nn.Linear
    count: int
    width: int


def find_heads(cell: Cell) -> CellUnits | None:
    """The heads of a cell of attention; None for other cells."""
    count, width = getattr(cell, "num_heads", 0), getattr(cell, "head_width", 0)
    if cell.facts.computes != "attention" or not count:
        return None
    whole = cell.projection.in_features == count * width
    return CellUnits(cell.projection, count, width) if whole else None


def find_neurons(cell: Cell) -> CellUnits | None:
    """The inner columns of a feed-forward cell; None for other cells."""
    if not isinstance(cell, PositionWise):
        return None
    return CellUnits(cell.down, cell.down.in_features, 1)


def count_parameters(cell: Cell, units: CellUnits) -> float:
    """The parameters of a cell that go with one unit: all but the bias of its last map."""
    own = sum(weight.numel() for weight in cell.parameters())
    kept = 0 if units.output.bias is None else units.output.bias.numel()
    return (own - kept) / units.count


def list_heads(module: nn.Module) -> list[CellUnits]:
    """The heads of each cell of attention in the stacks of a module."""
    found = [find_heads(cell) for _, cell in list_cells(module)]
    return [units for units in found if units is not None]


def list_neurons(module: nn.Module) -> list[CellUnits]:
    """The inner columns of each feed-forward cell in the stacks of a module."""
    found = [find_neurons(cell) for _, cell in list_cells(module)]
    return [units for units in found if units is not None]


def list_cells(module: nn.Module) -> Iterator[tuple[str, Cell]]:
    """(path inside `module`, cell) of each cell of its stacks, in the order of their parameters."""
    for path, stack in module.named_modules():
        if isinstance(stack, Stack):
            for inner, block in stack.blocks.named_modules():
                if isinstance(block, Block):
                    yield f"{path}.blocks.{inner}.cell", block.cell
