"""TransE."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.graph.scores.base import Score


@part_of("graph_score")
class TransE(Score):
    """`s = -||h + r - t||` (Bordes et al., 2013, NIPS 26, sec. 2).

    First vectors: uniform in -6/sqrt(W) to 6/sqrt(W), relations then of length 1.

    Args:
        norm: 1 for the sum of absolute values, 2 for the Euclidean length.
        unit_entities: every entity has the length 1 again after each update.
    """

    def __init__(self, *, norm: Literal[1, 2] = 1, unit_entities: bool = True) -> None:
        self.norm, self.unit_entities = norm, unit_entities

    def start(self, entity: Tensor, relation: Tensor, generator: Generator) -> None:
        bound = 6 / entity.shape[1] ** 0.5
        for table in (entity, relation):
            torch.nn.init.uniform_(table, -bound, bound, generator=generator)
        with torch.no_grad():
            relation.copy_(F.normalize(relation, dim=-1))
        self.constrain(entity)

    def ask_tail(self, head: Tensor, relation: Tensor) -> Tensor:
        return head + relation

    def ask_head(self, relation: Tensor, tail: Tensor) -> Tensor:
        return tail - relation

    def compare(self, question: Tensor, candidate: Tensor) -> Tensor:
        return -torch.linalg.vector_norm(question - candidate, ord=self.norm, dim=-1)

    def compare_all(self, question: Tensor, table: Tensor) -> Tensor:
        # products of bf16 would lose the small distances
        with torch.autocast(question.device.type, enabled=False):
            return -torch.cdist(question, table, p=float(self.norm))

    @torch.no_grad()
    def constrain(self, entity: Tensor) -> None:
        if self.unit_entities:
            entity.copy_(F.normalize(entity, dim=-1))
