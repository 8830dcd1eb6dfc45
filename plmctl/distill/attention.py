"""Distances of attention, layer by layer: of raw scores (TinyBERT) or probabilities
(MobileBERT).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.distill.base import Measures, Predictions, Signal, Teacher
from plmctl.distill.maps import Layers, make_layer_map
from plmctl.distill.relations import check_heads, kl_divergence
from plmctl.objectives.base import Output


class AttentionDistance(Signal):
    """A distance of the scores of paired layers, head by head, which a subclass defines; with
    `by_layer` each layer is a term of its own. ConfigError if the numbers of heads differ.
    """

    record = frozenset({"scores"})

    def __init__(
        self,
        *,
        weight: float,
        student: Measures,
        teacher: Teacher,
        layers: Layers = "uniform",
        by_layer: bool = False,
    ) -> None:
        super().__init__(weight=weight)
        check_heads(student, teacher.measures)
        self.pairs = make_layer_map(
            layers, student=student.num_layers, teacher=teacher.measures.num_layers
        )
        if any(g == 0 for _, g in self.pairs):
            raise ConfigError(
                "layers", layers, "layers from 1 on: the embedding output (0) has no attention"
            )
        self.layers = [m for m, _ in self.pairs] if by_layer else []

    def counts(self, batch: Batch, positions: Mapping[str, int], real: int) -> dict[str, int]:
        return dict.fromkeys(self.terms(()), real)

    def forward(self, student: Predictions, teacher: Predictions, batch: Batch) -> Output:
        own, other = student.recorded["scores"], teacher.recorded["scores"]
        distances = [
            self.distance(own[m - 1], other[g - 1]).where(student.real, 0.0).sum()
            for m, g in self.pairs
        ]
        return self.sum_layers(distances)

    def distance(self, own: Tensor, other: Tensor) -> Tensor:
        """The distance of each query: scores [B, H, T, T] of both -> [B, T]."""
        raise NotImplementedError(type(self).__name__)


@part_of("signals")
class AttentionMSE(AttentionDistance):
    """`sum_m mean_h,j (A_S - A_T)_hij^2` of raw scores, where scores of hidden tokens are 0; the
    mean over real queries i.

    j runs over the keys that i may see. (Jiao et al., 2020, arXiv:1909.10351, eq. 7.) Differs: the
    released code's mean is over all T^2 pairs of a padded row; where rows are full, it is the same
    number.
    """

    def distance(self, own: Tensor, other: Tensor) -> Tensor:
        lowest = torch.finfo(other.dtype).min / 2
        seen = (own > lowest) | (other > lowest)
        gap = own.where(own > lowest, 0.0) - other.where(other > lowest, 0.0)
        return (gap.square().sum(-1) / seen.sum(-1).clamp(min=1)).mean(1)


@part_of("signals")
class AttentionKL(AttentionDistance):
    """`sum_m mean_h KL(softmax A_T[i] || softmax A_S[i])`, the mean over real queries i.

    (Sun et al., 2020, arXiv:2004.02984, sec. 3.2, attention transfer.)
    """

    def distance(self, own: Tensor, other: Tensor) -> Tensor:
        return kl_divergence(own, other).mean(1)
