"""RotatE."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Generator, Tensor

from plmctl.core.parts import part_of
from plmctl.graph.scores.base import BLOCK, Score, multiply


@part_of("graph_score")
class RotatE(Score):
    """`s = -sum_i |h_i e^(i a_i) - t_i|`, where a relation is the angles a (Sun et al., 2019,
    arXiv:1902.10197, eq. 2 and code).

    First vectors: entities uniform in -spread to spread, angles in -pi to pi.
    Differs: an angle is stored as it is (code: times a constant, which makes its steps longer).

    Args:
        norm: 1 for the sum of the moduli, as in the paper's code; 2 for the Euclidean length of the
            complex difference.
        spread: The deviation of the first entities; the paper's is (gamma + 2) / d.
    """

    complex = True

    def __init__(self, *, norm: Literal[1, 2] = 1, spread: float = 0.05) -> None:
        self.norm, self.spread = norm, spread

    def relation_width(self, width: int) -> int:
        return width // 2

    def start(self, entity: Tensor, relation: Tensor, generator: Generator) -> None:
        torch.nn.init.uniform_(entity, -self.spread, self.spread, generator=generator)
        torch.nn.init.uniform_(relation, -math.pi, math.pi, generator=generator)

    def ask_tail(self, head: Tensor, relation: Tensor) -> Tensor:
        return multiply(self._turn(relation), head)

    def ask_head(self, relation: Tensor, tail: Tensor) -> Tensor:
        return multiply(self._turn(relation), tail, conjugate=True)

    @staticmethod
    def _turn(angle: Tensor) -> Tensor:
        """[..., W / 2] angles -> [..., W] complex numbers of modulus 1."""
        return torch.cat([angle.cos(), angle.sin()], dim=-1)

    def compare(self, question: Tensor, candidate: Tensor) -> Tensor:
        difference = question - candidate
        if self.norm == 2:
            return -torch.linalg.vector_norm(difference, dim=-1)
        return -self.moduli(difference).sum(-1)

    def compare_all(self, question: Tensor, table: Tensor) -> Tensor:
        size = max(1, BLOCK // max(1, question.numel()))
        parts = [self.compare(question[:, None], block) for block in table.split(size)]
        return torch.cat(parts, dim=1)
