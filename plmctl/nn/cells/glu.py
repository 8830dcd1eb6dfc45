"""Gated cells: feed-forward (Shazeer, 2020, arXiv:2002.05202, sec. 2), and the gate alone (Dauphin
et al., 2017, arXiv:1612.08083).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts
from plmctl.nn.cells.feedforward import PositionWise, find_activation
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams


@part_of("cells")
class GLU(PositionWise):
    """`down(activation(gate(x)) * up(x))`, [B, T, W] -> [B, T, W] through `inner_width`; `chunk` as
    in `PositionWise`.
    """

    inputs = ("gate", "up")

    def __init__(
        self,
        *,
        width: int,
        inner_width: int,
        activation: str,
        dropout: DropoutRate = 0.0,
        bias: bool = False,
        chunk: Count | None = None,
    ) -> None:
        super().__init__(chunk=chunk)
        self.activation = find_activation(activation)
        self.gate = nn.Linear(width, inner_width, bias=bias)
        self.up = nn.Linear(width, inner_width, bias=bias)
        self.down = nn.Linear(inner_width, width, bias=bias)
        self.dropout = Dropout(rate=dropout)

    def combine(self, *projected: Tensor) -> Tensor:
        gate, up = projected
        return self.dropout(self.activation(gate) * up)


@part_of("cells")
class GatedLinearUnit(Cell):
    """`value(x) * sigmoid(gate(x))`, [B, T, W] -> [B, T, outputs]; `outputs` null: W.

    Source: Dauphin et al., 2017, arXiv:1612.08083, eq. 1, with a window of one token: the first
    cell of the Evolved Transformer's encoder (So et al., 2019, arXiv:1901.11117, fig. 3).
    """

    projected_by = "value"
    facts = CellFacts(computes="feed-forward")

    def __init__(self, *, width: int, outputs: Count | None = None) -> None:
        super().__init__()
        self.facts = replace(self.facts, outputs=outputs)
        self.value = nn.Linear(width, outputs or width)
        self.gate = nn.Linear(width, outputs or width)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x = streams["text"]
        return self.value(x) * torch.sigmoid(self.gate(x))
