"""The gated feed-forward cell (Shazeer, 2020, arXiv:2002.05202, sec. 2)."""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.feedforward import PositionWise, find_activation
from plmctl.nn.dropout import Dropout


@part_of("cells")
class GLU(PositionWise):
    """`down(activation(gate(x)) * up(x))`, [B, T, W] -> [B, T, W] through `inner_width`; `chunk` as
    in `PositionWise`.
    """

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

    def compute(self, x: Tensor) -> Tensor:
        return self.down(self.dropout(self.activation(self.gate(x)) * self.up(x)))
