"""A token sees itself and later ones."""

from __future__ import annotations

from plmctl.attention.patterns.base import MaskMod, Pattern
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.core.batch import Seq
from plmctl.core.parts import part_of


@part_of("pattern")
class Anticausal(Pattern):
    """`k >= q`: the future and oneself; the right-to-left mode of UniLM (Dong et al., 2019,
    arXiv:1905.03197, sec. 2.3).
    """

    def sight(self, segment: int | None = None) -> Sight:
        return Sight((Offsets.between(0, None),))

    def predicate(self, seq: Seq) -> MaskMod:
        return lambda b, h, q, k: k >= q

    def thin(self, gap: int, seq: Seq) -> Pattern:
        return self
