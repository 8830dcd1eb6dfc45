"""TransE's margin loss."""

from __future__ import annotations

from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.core.values import Count, Number
from plmctl.graph.losses.base import SampledLoss


@part_of("graph_loss")
class Margin(SampledLoss):
    """`max(0, gamma - s(right) + s(drawn))`, the mean over what is drawn (Bordes et al., 2013,
    NIPS 26, eq. 1).

    Args:
        gamma: the margin.
        negatives: entities that are drawn for each question.
        filtered: a drawn entity that is an answer in the training triples is drawn again.
    """

    def __init__(self, *, gamma: Number, negatives: Count, filtered: bool = False) -> None:
        super().__init__(negatives=negatives, filtered=filtered)
        self.gamma = gamma

    def total(self, positive: Tensor, negative: Tensor) -> Tensor:
        return (self.gamma - positive[:, None] + negative).relu().mean(1).sum()
