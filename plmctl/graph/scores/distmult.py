"""DistMult."""

from __future__ import annotations

from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.graph.scores.base import Product


@part_of("graph_score")
class DistMult(Product):
    """`s = sum_i h_i r_i t_i` (Yang et al., 2015, arXiv:1412.6575, sec. 2.2).

    A triple and its reverse have the same score.
    """

    def ask_tail(self, head: Tensor, relation: Tensor) -> Tensor:
        return head * relation

    def ask_head(self, relation: Tensor, tail: Tensor) -> Tensor:
        return relation * tail

    def ask_relation(self, head: Tensor, tail: Tensor) -> Tensor:
        return head * tail
