"""KEPLER's loss of triples."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.core.values import Count, Number
from plmctl.graph.losses.base import SampledLoss


@part_of("graph_loss")
class LogSigmoid(SampledLoss):
    """`-1/2 [log sigmoid(gamma + s(right)) + mean log sigmoid(-gamma - s(drawn))]` (Wang et al.,
    2021, arXiv:1911.06136, eq. 3; with equal weights as in its code).

    Args:
        gamma: the distance at which a triple is as likely as not.
        negatives: entities that are drawn for each question; KEPLER: 1 head and 1 tail a triple.
        filtered: a drawn entity that is an answer in the training triples is drawn again.
    """

    def __init__(self, *, gamma: Number, negatives: Count, filtered: bool = False) -> None:
        super().__init__(negatives=negatives, filtered=filtered)
        self.gamma = gamma

    def total(self, positive: Tensor, negative: Tensor) -> Tensor:
        right = F.logsigmoid(self.gamma + positive)
        wrong = F.logsigmoid(-self.gamma - negative).mean(1)
        return -0.5 * (right + wrong).sum()
