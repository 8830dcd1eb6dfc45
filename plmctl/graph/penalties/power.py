"""N3, and L2: a power of the size of each number."""

from __future__ import annotations

from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Number
from plmctl.graph.penalties.base import Penalty


@part_of("graph_penalty")
class Power(Penalty):
    """`weight sum_i |x_i|^power` of the head, the relation and the tail of each question: N3 with
    power 3 (Lacroix et al., 2018, arXiv:1806.07297, eq. 5 and code), L2 with power 2.

    A vector counts as often as it occurs, so frequent entities are penalised more.

    Args:
        weight: The weight of the mean over questions, relative to the mean loss.
        power: The power of each absolute value.
    """

    def __init__(self, *, weight: Number, power: Amount) -> None:
        self.weight, self.power = weight, power

    def total(self, moduli: Tensor) -> Tensor:
        if self.power == 3:  # much faster than a power
            return (moduli * moduli * moduli).sum()
        return (moduli * moduli if self.power == 2 else moduli**self.power).sum()
