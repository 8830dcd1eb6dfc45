"""K-vs-all: every entity is right or wrong."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.core.values import Rate
from plmctl.graph.losses.base import FullLoss, Known, widen
from plmctl.graph.scores.base import Score


@part_of("graph_loss")
class KVsAll(FullLoss):
    """The mean binary cross-entropy of all entities, where every known answer is right (Dettmers
    et al., 2018, arXiv:1707.01476, eq. 2, "1-N scoring").

    Differs: a question counts once for each of its triples (code: once).

    Args:
        smoothing: e: labels y become (1 - e) y + e / E.
    """

    known = True

    def __init__(self, *, smoothing: Rate = 0.1) -> None:
        self.smoothing = smoothing

    def total(
        self, score: Score, question: Tensor, table: Tensor, answer: Tensor, known: Known
    ) -> Tensor:
        assert known is not None
        scores = widen(score.compare_all(question, table))
        labels = torch.zeros_like(scores)
        labels[known] = 1.0
        labels = labels.mul_(1 - self.smoothing).add_(self.smoothing / len(table))
        return F.binary_cross_entropy_with_logits(scores, labels, reduction="sum") / len(table)
