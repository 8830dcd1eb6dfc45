"""What every cell is: the computing part of a sublayer, without its norm and residual connection."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from plmctl.attention.kernels import Mask
from plmctl.nn.positions import Position


@dataclass(frozen=True)
class Context:
    """What the cells of one forward pass may read besides their input."""

    mask: Mask  # who may see whom
    position: Position  # how strongly, by place
    places: Tensor  # [B | 1, T] place of every token


class Cell(nn.Module):
    """`forward(x [B, T, W], context) -> [B, T, W]`; `projection` is the last linear map, the one that writes to the stream."""

    projection: nn.Linear

    def forward(self, x: Tensor, context: Context) -> Tensor:
        raise NotImplementedError(type(self).__name__)
