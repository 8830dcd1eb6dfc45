"""The gated feed-forward cell (Shazeer, 2020, arXiv:2002.05202, sec. 2)."""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.nn.cells.base import Cell
from plmctl.nn.cells.feedforward import find_activation
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams


@part_of("cells")
class GLU(Cell):
    """`down(activation(gate(x)) * up(x))`, [B, T, W] -> [B, T, W] through `inner_width`."""

    computes = "feed-forward"

    def __init__(
        self,
        *,
        width: int,
        inner_width: int,
        activation: str,
        dropout: DropoutRate = 0.0,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.activation = find_activation(activation)
        self.gate = nn.Linear(width, inner_width, bias=bias)
        self.up = nn.Linear(width, inner_width, bias=bias)
        self.down = nn.Linear(inner_width, width, bias=bias)
        self.dropout = Dropout(rate=dropout)

    @property
    def projection(self) -> nn.Linear:  # type: ignore[override]
        return self.down

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x = streams["text"]
        return self.down(self.dropout(self.activation(self.gate(x)) * self.up(x)))
