"""Gates of methods: each row decides its share of the change by a method (UniPELT)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from plmctl.attention.kernels.dense import Before
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount
from plmctl.nn.cells.base import Cell, Prefix, Prefixed
from plmctl.nn.env import Env, Streams
from plmctl.nn.peft.base import Added, Method, find_cells
from plmctl.nn.starting import Starting


class CellInput:
    """The input of a cell, while it runs: `text` [B, T, W], and `real` [B, T], its tokens that are
    no padding; None: all of them.
    """

    def __init__(self) -> None:
        self.text: Tensor | None = None
        self.real: Tensor | None = None


@dataclass(frozen=True, eq=False)
class _Enter:
    """States what a cell begins to read."""

    reading: CellInput

    def __call__(self, cell: nn.Module, inputs: tuple[Streams, Env]) -> None:
        streams, env = inputs
        if env.seq is None:
            allowed = "for models whose cells know padding: those of XLNet and Funnel do not"
            raise ConfigError("peft", GatedMethod.mark, allowed, fix="peft=[lora]")
        self.reading.text, self.reading.real = streams["text"], env.real


@dataclass(frozen=True, eq=False)
class _Leave:
    """Lets go of it."""

    reading: CellInput

    def __call__(self, cell: nn.Module, inputs: Any, result: Any) -> None:
        self.reading.text = self.reading.real = None


class Gate(Starting):
    """`g = mean over real tokens t of sigmoid(w x_t + b)`, of each row."""

    def __init__(self, reading: CellInput, *, width: int, std: float) -> None:
        super().__init__()
        self.reading, self.std = reading, std
        self.weight = nn.Parameter(torch.empty(1, width))
        self.bias = nn.Parameter(torch.empty(1))

    def start(self, generator: Generator) -> None:
        nn.init.normal_(self.weight, std=self.std, generator=generator)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor | None = None) -> Tensor:
        """[B, 1, 1] the gate of each row.

        Args:
            x: [B, T, W]; None: what the cell reads.
        """
        read = self.reading.text if x is None else x
        assert read is not None, "a gate belongs to a cell that runs"
        each = F.linear(read, self.weight, self.bias).sigmoid()  # [B, T, 1]
        if self.reading.real is None:
            return each.mean(1, keepdim=True)
        real = self.reading.real[..., None].to(each.dtype)
        return (each * real).sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)


class GatedChange(Added):
    """`y + g (change(y) - y)`: behind a cell, g reads what the change reads; in a linear map, what
    the cell reads, and what each of its things gives has a gate of its own.
    """

    def __init__(self, change: Added, reading: CellInput, *, width: int, std: float) -> None:
        super().__init__()
        self.inner, self.rows = change, dict(change.rows)
        names = list(change.rows) or ["cell"]
        gates = {name: Gate(reading, width=width, std=std) for name in names}
        self.gates = nn.ModuleDict(gates)

    def start(self, generator: Generator) -> None:
        """Each part begins by itself."""

    def settle(self) -> None:
        self.inner.settle()

    def change(self, x: Any, y: Tensor) -> Tensor:
        added = self.inner.change(x, y) - y
        if not self.rows:
            return y + self.gates["cell"](self.inner.find_read(x, y)) * added
        parts: list[Tensor] = []
        place = 0
        for name, rows in sorted(self.rows.items(), key=lambda item: item[1].start):
            parts += [
                y[..., place : rows.start],
                y[..., rows] + self.gates[name]() * added[..., rows],
            ]
            place = rows.stop
        return torch.cat([*parts, y[..., place:]], -1)


class GatedPrefix(nn.Module):
    """`g P_k` and `g P_v`, [B, H, P, D] each."""

    def __init__(self, prefix: nn.Module, reading: CellInput, *, width: int, std: float) -> None:
        super().__init__()
        self.inner, self.gate = prefix, Gate(reading, width=width, std=std)

    def forward(self) -> Before:
        before, gate = self.inner(), self.gate()[..., None]
        return Before(gate * before.keys, gate * before.values)


@part_of("peft")
class GatedMethod(Method):
    """Changes by several methods, each times a gate of the row, `g = mean_t sigmoid(w x_t + b)`, of
    each cell or map that they change (UniPELT: Mao et al., 2022, arXiv:2110.07577, sec. 3).

    LoRA and prefixes are gated by what the attention reads, adapters by what they read. Differs:
    the mean is over real tokens (released code and AdapterHub: over padding, too), so that an
    answer does not depend on the other rows of a batch. A gate replaces LoRA's factor: alpha is the
    rank (as in AdapterHub).

    Args:
        parts: The methods, by any names. Each adds to results, or is a prefix.
        std: The deviation of the first w, normal.
    """

    mark = "unipelt"

    def __init__(self, *, parts: Mapping[str, Method | None], std: Amount = 0.02) -> None:
        self.parts = {name: part for name, part in parts.items() if part is not None}
        self.places, self.std = sum(part.places for part in self.parts.values()), std
        if not self.parts:
            raise ConfigError("parts", dict(parts), "one method at least", fix="peft=[lora]")

    def add_to(self, model: nn.Module) -> None:
        _refuse_earlier_tokens(model)
        readings = {cell: CellInput() for cell in find_cells(model)}
        gated = set[Cell]()
        for name, part in self.parts.items():
            before = {cell: _find_prefix(cell) for cell in readings}
            try:
                part.add_to(model)
            except ConfigError as error:
                raise error.under(f"peft.{self.mark}.parts.{name}") from None
            own = [cell for cell in readings if self.gate(cell, part, before[cell], readings[cell])]
            if not own:
                allowed = "a method that adds to results, such as LoRA and adapters, or a prefix"
                fix = f"peft.{self.mark}.parts.{name}=null"
                raise ConfigError(f"parts.{name}", part.mark, allowed, fix=fix)
            gated.update(own)
        for cell in gated:
            cell.facts = replace(cell.facts, whole=True)
            cell.register_forward_pre_hook(_Enter(readings[cell]))
            # always: a backward pass stops a second run of the cell before its end
            cell.register_forward_hook(_Leave(readings[cell]), always_call=True)

    def gate(self, cell: Cell, part: Method, before: Prefix | None, reading: CellInput) -> bool:
        """Multiply what a method has added to this cell by gates; returns whether it added.

        Args:
            before: The prefix that the cell had without it.
        """
        width, found = cell.columns(), False
        for owner in cell.modules():
            added = owner._modules.get(part.mark)
            if isinstance(added, Added) and type(added).change_input is Added.change_input:
                gated = GatedChange(added, reading, width=width, std=self.std)
                owner._modules[part.mark], found = gated, True
        prefix: Any = _find_prefix(cell)
        if isinstance(cell, Prefixed) and prefix is not before:
            cell.take_prefix(GatedPrefix(prefix, reading, width=width, std=self.std))
            found = True
        return found

    def trains(self, model: nn.Module) -> list[str]:
        names = {name for part in self.parts.values() for name in part.trains(model)}
        return [name for name, _ in model.named_parameters() if name in names]

    def prepare(self, model: nn.Module, tokenizer: Any) -> None:
        for part in self.parts.values():
            part.prepare(model, tokenizer)

    def check_folding(self) -> None:
        raise self.refuse_folding("gates, which differ from row to row")


def _find_prefix(cell: Cell) -> Prefix | None:
    return cell.find_prefix() if isinstance(cell, Prefixed) else None


def _refuse_earlier_tokens(model: nn.Module) -> None:
    """ConfigError for a model in which some token does not see all others of its row."""
    pattern = getattr(model, "pattern", None)
    if pattern is None or not all(map(pattern.looks_ahead, (0, 1))):
        allowed = "for encoders whose tokens see later ones: a gate is a mean over the whole row"
        raise ConfigError("parts", ..., allowed, fix="peft=[lora]")
