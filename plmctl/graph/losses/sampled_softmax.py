"""A softmax over the right answer and entities that are drawn for all questions together."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.graph.losses.base import FullLoss, Known, widen
from plmctl.graph.scores.base import Score


@part_of("graph_loss")
class SampledSoftmax(FullLoss):
    """`-log (exp s(right) / (exp s(right) + sum_i exp s(i)))`, i over entities that are drawn
    uniformly (Ruffinelli et al., 2020, https://openreview.net/forum?id=BkxSmlBFvr, sec. 2.2:
    negative sampling with cross-entropy).

    One product of matrices compares all questions with all drawn entities. An update takes about a
    third of the time of one over 14,500 entities.

    Differs: all questions of a backward pass share what is drawn (published: each draws its own).

    Args:
        drawn: entities that are drawn, with repetition.
    """

    def __init__(self, *, drawn: Count) -> None:
        self.drawn = drawn

    def total(
        self, score: Score, question: Tensor, table: Tensor, answer: Tensor, known: Known
    ) -> Tensor:
        drawn = torch.randint(len(table), (self.drawn,), device=table.device)  # [K]
        positive = score.compare(question, F.embedding(answer, table))  # [B]
        negative = score.compare_all(question, F.embedding(drawn, table))  # [B, K]
        # a right answer that is drawn is not a wrong one
        negative = widen(negative).masked_fill(drawn == answer[:, None], -math.inf)
        scores = torch.cat([widen(positive)[:, None], negative], dim=1)
        return F.cross_entropy(scores, torch.zeros_like(answer), reduction="sum")
