"""The squared error of a cosine."""

from __future__ import annotations

from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.tasks.pair_losses.base import PairLoss


@part_of("pair_loss")
class SquaredError(PairLoss):
    """`(cos(u, v) - y)^2` (Reimers and Gurevych, 2019, arXiv:1908.10084, sec. 3, "regression
    objective function").
    """

    def sum_up(self, rated: Tensor, gold: Tensor) -> Tensor:
        return (rated[:, 0] - gold).square().sum()
