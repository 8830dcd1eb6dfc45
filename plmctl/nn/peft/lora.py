"""LoRA: what a linear map learns is a product of two narrow ones (Hu et al., 2022)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count, DropoutRate
from plmctl.nn.cells.base import LinearRows
from plmctl.nn.dropout import Dropout
from plmctl.nn.peft.base import Added, Method, attach, check_size, find_maps


class LowRankChange(Added):
    """`y + s B A dropout(x)` on some rows of a linear map: `down [r, in]` is A, `up [rows, r]` B.

    Where one map gives several things, such as queries and values, each has matrices of its own.
    """

    def __init__(
        self, maps: Mapping[str, LinearRows], *, rank: int, scale: float, dropout: float
    ) -> None:
        super().__init__()
        linear = next(iter(maps.values())).linear
        self.scale, self.rows = scale, {name: part.rows for name, part in maps.items()}
        self.down, self.up = nn.ParameterDict(), nn.ParameterDict()
        for name, rows in self.rows.items():
            self.down[name] = nn.Parameter(torch.empty(rank, linear.in_features))
            self.up[name] = nn.Parameter(torch.empty(rows.stop - rows.start, rank))
        self.dropout = Dropout(rate=dropout)

    def start(self, generator: Generator) -> None:
        for name, down in self.down.items():
            # U(-1/sqrt(in), 1/sqrt(in)), as torch begins linear maps (microsoft/LoRA, layers.py)
            nn.init.kaiming_uniform_(down, a=math.sqrt(5), generator=generator)
            nn.init.zeros_(self.up[name])

    def change(self, x: Tensor, y: Tensor) -> Tensor:
        parts: list[Tensor] = []
        place = 0
        for name, rows in sorted(self.rows.items(), key=lambda item: item[1].start):
            more = F.linear(F.linear(self.dropout(x), self.down[name]), self.up[name])
            parts += [y[..., place : rows.start], y[..., rows] + self.scale * more]
            place = rows.stop
        return torch.cat([*parts, y[..., place:]], -1)

    @torch.no_grad()
    def fold_result(self, owner: nn.Module) -> None:
        weight: Tensor = owner.weight  # type: ignore[assignment]
        for name, rows in self.rows.items():
            # in float64: what is rounded is rounded once
            learned = self.scale * self.up[name].double() @ self.down[name].double()
            weight[rows] = (weight[rows].double() + learned).to(weight.dtype)


@part_of("peft")
class LowRank(Method):
    """`W x + (alpha / r) B A x` instead of `W x`, W fixed, B = 0 at first (Hu et al., 2022,
    arXiv:2106.09685, sec. 4.1).

    Args:
        maps: The outputs of the chosen maps: query, key, value, output, up, gate, down.
        rank: r.
        alpha: The numerator of the factor.
        root: the factor is alpha / sqrt(r) (Kalajdzievski, 2023, arXiv:2312.03732).
        dropout: The rate of dropout on the input of A.
    """

    mark = "lora"

    def __init__(
        self,
        *,
        maps: Sequence[str],
        rank: Count,
        alpha: Amount,
        root: bool = False,
        dropout: DropoutRate = 0.0,
    ) -> None:
        self.maps, self.rank, self.dropout = tuple(maps), rank, dropout
        self.alpha, self.root = alpha, root
        self.scale = alpha / (math.sqrt(rank) if root else rank)

    def add_to(self, model: nn.Module) -> None:
        for maps in find_maps(model, self.maps, "lora", "maps"):
            linear = next(iter(maps.values())).linear
            for name, part in maps.items():
                most = min(linear.in_features, part.rows.stop - part.rows.start)
                check_size("rank", self.rank, most, f"the rank of the map '{name}' itself")
            change = LowRankChange(maps, rank=self.rank, scale=self.scale, dropout=self.dropout)
            attach(linear, self.mark, change)
