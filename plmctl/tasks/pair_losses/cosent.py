"""Cosines in the order of the scores."""

from __future__ import annotations

from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.core.values import Amount
from plmctl.tasks.pair_losses.base import PairLoss, sum_ranked


@part_of("pair_loss")
class CoSENT(PairLoss):
    """`log(1 + sum_{y_i < y_j} exp(scale (s_i - s_j)))`, s the cosine of a pair and y its score;
    i and j are any two pairs of an update (Su, 2022, https://kexue.fm/archives/8847).

    Args:
        scale: The factor of the cosines.
    """

    compares = True

    def __init__(self, *, scale: Amount = 20.0) -> None:
        self.scale = scale

    def sum_up(self, rated: Tensor, gold: Tensor) -> Tensor:
        return len(gold) * sum_ranked(rated[:, 0], gold, self.scale)
