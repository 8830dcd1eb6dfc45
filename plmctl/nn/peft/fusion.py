"""Adapters that were trained before: several behind a cell, whose results attention mixes
(AdapterFusion), or below new ones (stacks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount
from plmctl.nn.cells.base import Cell
from plmctl.nn.peft.base import Added, Method, attach
from plmctl.nn.peft.bottleneck import Bottleneck, BottleneckChange
from plmctl.nn.restrained import Restrained


class TrainedChange(Added):
    """Adapters by their numbers, in `adapters`, one behind the other."""

    def __init__(self, adapters: Mapping[int, BottleneckChange]) -> None:
        super().__init__()
        self.adapters = nn.ModuleDict({str(number): part for number, part in adapters.items()})

    def start(self, generator: Generator) -> None:
        """Nothing is new: each adapter begins by itself."""

    def change(self, x: Any, y: Tensor) -> Tensor:
        for adapter in self.each():
            y = adapter.change(x, y)
        return y

    def each(self) -> list[BottleneckChange]:
        """The adapters in their order."""
        return list(self.adapters.children())  # type: ignore[arg-type]


class FusedChange(TrainedChange, Restrained):
    """`y + sum_n s_n V z_n`, s = softmax over n of `(Q q + b) . (K z_n + c)`, z_n what adapter n
    adds, q = y, or norm(x + y) where the last adapter reads that.

    `penalty`: lambda of `lambda |V - I|^2`.
    """

    def __init__(
        self, adapters: Mapping[int, BottleneckChange], *, width: int, std: float, penalty: float
    ) -> None:
        super().__init__(adapters)
        self.std, self.strength = std, penalty
        self.query, self.key, self.value = (
            nn.Parameter(torch.empty(width, width)) for _ in range(3)
        )
        self.query_bias, self.key_bias = (nn.Parameter(torch.empty(width)) for _ in range(2))

    def start(self, generator: Generator) -> None:
        for weight in (self.query, self.key):
            nn.init.normal_(weight, std=self.std, generator=generator)
        for bias in (self.query_bias, self.key_bias):
            nn.init.zeros_(bias)
        nn.init.normal_(self.value, std=1e-6, generator=generator)
        self.value.data.fill_diagonal_(1)

    def penalty(self, noted: Sequence[Tensor] = ()) -> Tensor:
        """[] `lambda |V - I|^2`."""
        own = torch.eye(len(self.value), device=self.value.device, dtype=self.value.dtype)
        return self.strength * (self.value - own).square().sum()

    def change(self, x: Any, y: Tensor) -> Tensor:
        added = torch.stack([adapter.add(x, y) for adapter in self.each()], -2)  # [B, T, N, W]
        asked = self.each()[-1].ask(x, y)
        query = F.linear(asked, self.query, self.query_bias)[..., None, :]
        scores = (query * F.linear(added, self.key, self.key_bias)).sum(-1)  # [B, T, N]
        mixed = (scores.softmax(-1)[..., None] * F.linear(added, self.value)).sum(-2)
        return y + mixed


@part_of("peft")
class TrainedAdapters(Method):
    """Adapters of earlier runs stay as they are, the first one behind the cell, each further one
    behind that; what is trained stands above them (MAD-X: Pfeiffer et al., 2020, arXiv:2005.00052,
    sec. 3.3: of a task above that of a language).

    Differs: without invertible adapters at the tokens (sec. 3.2).

    Args:
        runs: The checkpoints of runs with one method, an adapter, and the same base.
        adapters: The names of these adapters, derived from `runs`.
    """

    mark = "below"
    takes_runs = True

    def __init__(self, *, runs: Sequence[str], adapters: Sequence[Method] = ()) -> None:
        self.adapters = [part for part in adapters if isinstance(part, Bottleneck)]
        if not runs:
            raise ConfigError("runs", [], "one run with peft=[adapter] at least")
        if len(self.adapters) != len(runs):
            raise ConfigError(
                "adapters", len(adapters), f"one adapter for each of {len(runs)} runs"
            )

    def add_to(self, model: nn.Module) -> None:
        found: dict[int, tuple[Cell, dict[int, BottleneckChange]]] = {}
        for number, method in enumerate(self.adapters):
            for block in method.choose_blocks(model):
                _, own = found.setdefault(id(block), (block.cell, {}))
                own[number] = method.make(block)
        for cell, own in found.values():
            attach(cell, self.mark, self.join(cell, own))

    def join(self, cell: Cell, adapters: Mapping[int, BottleneckChange]) -> TrainedChange:
        """The parts behind a cell."""
        return TrainedChange(adapters)

    def trains(self, model: nn.Module) -> list[str]:
        return [name for name in super().trains(model) if f".{self.mark}.adapters." not in name]

    def rename(self, name: str, number: int) -> str:
        """The name here of a tensor of the adapter of run `number`."""
        before, _, after = name.rpartition(f".{Bottleneck.mark}.")
        return f"{before}.{self.mark}.adapters.{number}.{after}"

    def check_folding(self) -> None:
        raise self.refuse_folding("additional networks, and attention over them")


@part_of("peft")
class AdapterFusion(TrainedAdapters):
    """Attention over what adapters of earlier runs add, for each token and cell; the adapters stay
    as they are (Pfeiffer et al., 2021, arXiv:2005.00247, sec. 3.2).

    V begins as the identity, and a penalty keeps it near it (released code, 0.01). The query is
    what the last adapter reads behind its cell: its result, or the normed sum of the layer.

    Args:
        runs: The checkpoints of runs with one method, an adapter, and the same base.
        adapters: The names of these adapters, derived from `runs`.
        penalty: lambda of `lambda |V - I|^2` in the loss.
        std: The deviation of the first queries and keys, normal.
    """

    mark = "fusion"

    def __init__(
        self,
        *,
        runs: Sequence[str],
        adapters: Sequence[Method] = (),
        penalty: Amount = 0.01,
        std: Amount = 0.02,
    ) -> None:
        super().__init__(runs=runs, adapters=adapters)
        self.penalty, self.std = penalty, std

    def join(self, cell: Cell, adapters: Mapping[int, BottleneckChange]) -> TrainedChange:
        width = cell.columns()
        return FusedChange(adapters, width=width, std=self.std, penalty=self.penalty)
