"""A feed-forward cell whose maps read and write groups of columns (Jiang et al., 2020,
arXiv:2008.02496, ConvBERT).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.divided import Plan


class GroupedLinear(nn.Linear):
    """`y_g = W_g x_g + b_g`: group g of the outputs is a map of group g of the inputs.

    `weight [outputs, inputs / groups]`, one group after the other.
    """

    def __init__(self, inputs: int, outputs: int, groups: int) -> None:
        super().__init__(inputs // groups, outputs)
        self.in_features, self.groups = inputs, groups

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight.unflatten(0, (self.groups, -1))
        groups = input.unflatten(-1, (self.groups, -1))
        return torch.einsum("...gi,goi->...go", groups, weight).flatten(-2) + self.bias


@part_of("cells")
class GroupedFeedForward(FeedForward):
    """`FeedForward`, each of whose maps is `groups` maps of as many parts of the columns.

    (Jiang et al., 2020, sec. 4.3.)
    """

    def __init__(
        self,
        *,
        width: int,
        inner_width: int,
        activation: str,
        groups: Count = 2,
        dropout: DropoutRate = 0.0,
    ) -> None:
        super().__init__(
            width=width, inner_width=inner_width, activation=activation, dropout=dropout
        )
        if width % groups or inner_width % groups:
            allowed = f"a divisor of size.width={width} and size.inner_width={inner_width}"
            raise ConfigError("groups", groups, allowed)
        self.up = GroupedLinear(width, inner_width, groups)
        self.down = GroupedLinear(inner_width, width, groups)

    def plan_division(self) -> Plan:
        return {}
