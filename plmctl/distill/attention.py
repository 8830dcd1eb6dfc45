"""Distances of attention, layer by layer: of raw scores (TinyBERT) or probabilities
(MobileBERT).
"""

from __future__ import annotations

import torch
from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.distill.base import LayerDistance, Measures
from plmctl.distill.relations import check_heads, kl_divergence


class AttentionDistance(LayerDistance):
    """A distance of the scores of paired layers, head by head. ConfigError if the numbers of heads
    differ.
    """

    recorded, first = "scores", 1

    def check(self, student: Measures, teacher: Measures) -> None:
        check_heads(student, teacher)


@part_of("signals")
class AttentionMSE(AttentionDistance):
    """`sum_m mean_h,j (A_S - A_T)_hij^2` of raw scores, where scores of hidden tokens are 0; the
    mean over real queries i.

    j runs over the keys that i may see. (Jiao et al., 2020, arXiv:1909.10351, eq. 7.) Differs: the
    released code's mean is over all T^2 pairs of a padded row; where rows are full, it is the same
    number.
    """

    def distance(self, own: Tensor, other: Tensor, number: int) -> Tensor:
        lowest = torch.finfo(other.dtype).min / 2
        seen = (own > lowest) | (other > lowest)
        gap = own.where(own > lowest, 0.0) - other.where(other > lowest, 0.0)
        return (gap.square().sum(-1) / seen.sum(-1).clamp(min=1)).mean(1)


@part_of("signals")
class AttentionKL(AttentionDistance):
    """`sum_m mean_h KL(softmax A_T[i] || softmax A_S[i])`, the mean over real queries i.

    (Sun et al., 2020, arXiv:2004.02984, sec. 3.2, attention transfer.)
    """

    def distance(self, own: Tensor, other: Tensor, number: int) -> Tensor:
        return kl_divergence(own, other).mean(1)
