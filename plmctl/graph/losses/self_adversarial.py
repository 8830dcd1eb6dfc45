"""RotatE's self-adversarial negative sampling."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.core.values import Count, Number
from plmctl.graph.losses.base import SampledLoss


@part_of("graph_loss")
class SelfAdversarial(SampledLoss):
    """`-log sigmoid(gamma + s(right)) - sum_i p_i log sigmoid(-gamma - s(i))`, p = softmax(alpha s)
    over what is drawn, without a gradient (Sun et al., 2019, arXiv:1902.10197, eq. 5 and 6).

    Differs: triples count the same (code: less where their head and relation are frequent).

    Args:
        gamma: the distance at which a triple is as likely as not.
        temperature: alpha; 0 weighs all the same.
        negatives: entities that are drawn for each question.
        filtered: a drawn entity that is an answer in the training triples is drawn again.
    """

    def __init__(
        self, *, gamma: Number, temperature: Number, negatives: Count, filtered: bool = False
    ) -> None:
        super().__init__(negatives=negatives, filtered=filtered)
        self.gamma, self.temperature = gamma, temperature

    def total(self, positive: Tensor, negative: Tensor) -> Tensor:
        weight = (self.temperature * negative.detach()).softmax(1)
        wrong = weight * F.logsigmoid(-self.gamma - negative)
        return -(F.logsigmoid(self.gamma + positive).sum() + wrong.sum())
