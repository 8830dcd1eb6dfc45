"""ComplEx."""

from __future__ import annotations

from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.graph.scores.base import Product, multiply


@part_of("graph_score")
class ComplEx(Product):
    """`s = Re(sum_i h_i r_i conj(t_i))`, of complex numbers (Trouillon et al., 2016,
    arXiv:1606.06357, eq. 9).
    """

    complex = True

    def ask_tail(self, head: Tensor, relation: Tensor) -> Tensor:
        return multiply(head, relation)

    def ask_head(self, relation: Tensor, tail: Tensor) -> Tensor:
        return multiply(relation, tail, conjugate=True)

    def ask_relation(self, head: Tensor, tail: Tensor) -> Tensor:
        return multiply(head, tail, conjugate=True)
