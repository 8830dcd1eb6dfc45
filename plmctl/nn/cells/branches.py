"""Two convolutions side by side, and a third on their sum (So et al., 2019, arXiv:1901.11117, fig.
3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams


@part_of("cells")
class ConvolutionBranches(Cell):
    """`join(norm(dropout(left(x)) + dropout(right(x))))`, [B, T, W] -> [B, T, W].

    The narrower of the two branches is filled with zeros behind its last column, and so is what
    `join` gives. Each is a cell of its own with a cache of its own.

    Args:
        width: W.
        left: A factory of the first branch, such as a `PlainConvolution`.
        right: A factory of the second branch.
        join: A factory of the cell that reads both.
        norm: A factory of the norm of their sum, as wide as the wider one.
        causal: Windows end at the token; otherwise it stands in their middle.
        dropout: The rate, on each branch.
    """

    projected_by = "join.projection"
    facts = CellFacts(computes="convolution")

    def __init__(
        self,
        *,
        width: int,
        left: Callable[..., Cell],
        right: Callable[..., Cell],
        join: Callable[..., Cell],
        norm: Callable[..., nn.Module],
        causal: bool,
        dropout: DropoutRate,
    ) -> None:
        super().__init__()
        self.width, self.facts = width, replace(self.facts, ahead=not causal)
        self.left, self.right = left(causal=causal), right(causal=causal)
        inner = max(self.left.facts.outputs or width, self.right.facts.outputs or width)
        self.norm = norm(width=inner)
        self.join = join(width=inner, causal=causal)
        if (self.join.facts.outputs or inner) > width:
            allowed = f"outputs of at most size.width={width}: they are added to the stream"
            raise ConfigError("join", self.join.facts.outputs, allowed)
        self.dropout = Dropout(rate=dropout)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        left = self.dropout(self.left(streams, env.enter("left")))
        right = self.dropout(self.right(streams, env.enter("right")))
        inner = max(left.shape[-1], right.shape[-1])
        both = self.norm(_widen(left, inner) + _widen(right, inner))
        return _widen(self.join(streams.replace("text", both), env.enter("join")), self.width)


def _widen(x: Tensor, width: int) -> Tensor:
    """[B, T, width] `x` with zeros behind its last column."""
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))
