"""A token sees itself and earlier ones."""

from __future__ import annotations

from plmctl.attention.patterns.base import MaskMod, Pattern
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.core.batch import Seq
from plmctl.core.parts import part_of


@part_of("pattern")
class Causal(Pattern):
    """`k <= q`: the past and oneself (Radford et al., 2018, sec. 3.1)."""

    def sight(self, segment: int | None = None) -> Sight:
        return Sight((Offsets.between(None, 0),))

    def predicate(self, seq: Seq) -> MaskMod:
        return lambda b, h, q, k: k <= q

    def thin(self, gap: int, seq: Seq) -> Pattern:
        return self
