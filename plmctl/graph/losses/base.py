"""The base of losses of graph embeddings: over drawn negatives, and over all entities."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from plmctl.core.parts import base_of
from plmctl.core.values import Count
from plmctl.graph.scores.base import Score

Known = tuple[Tensor, Tensor] | None


@base_of("graph_loss")
class GraphLoss:
    """The loss of questions, each with its right answer.

    `negatives`: entities that are drawn for each question, 0 if all are compared. `filtered`: none
    of them is a known answer. `known`: all known answers of each question are needed. `grouped`:
    the triples of an update with the same question share one question.
    """

    negatives: int = 0
    filtered: bool = False
    known: bool = False
    grouped: bool = False


class SampledLoss(GraphLoss, ABC):
    """A loss that compares the right answer with `negatives` entities, drawn uniformly.

    Args:
        negatives: entities that are drawn for each question.
        filtered: a drawn entity that is an answer in the training triples is drawn again.
    """

    def __init__(self, *, negatives: Count, filtered: bool = False) -> None:
        self.negatives, self.filtered = negatives, filtered

    @abstractmethod
    def total(self, positive: Tensor, negative: Tensor) -> Tensor:
        """[] the summed loss of the scores [B] of right answers and [B, K] of drawn ones."""


class FullLoss(GraphLoss, ABC):
    """A loss that compares all entities."""

    @abstractmethod
    def total(
        self, score: Score, question: Tensor, table: Tensor, answer: Tensor, known: Known
    ) -> Tensor:
        """[] the summed loss.

        Args:
            score: compares.
            question: [B, W].
            table: [E, W] all entities.
            answer: [B] the right ones.
            known: ([m] the question, [m] an answer to it), where `known` is set.
        """


def widen(scores: Tensor) -> Tensor:
    """Scores in fp32 where autocast has made them shorter."""
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores
