"""A token sees all others."""

from __future__ import annotations

from plmctl.attention.patterns.base import MaskMod, Pattern
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.core.batch import Seq
from plmctl.core.parts import part_of


@part_of("pattern")
class Others(Pattern):
    """`k != q`: everything but oneself, as where queries and keys are one map and the product of a
    token with itself would outweigh all others (Kitaev et al., 2020, arXiv:2001.04451, sec. 2).

    Differs: a token that is alone sees nothing, and not itself.
    """

    def sight(self, segment: int | None = None) -> Sight:
        return Sight((~Offsets.between(0, 0),))

    def predicate(self, seq: Seq) -> MaskMod:
        return lambda b, h, q, k: k != q

    def thin(self, gap: int, seq: Seq) -> Pattern:
        return self
