"""Blockwise attention (Qiu et al., 2020, arXiv:1911.02972): a token sees its own block."""

from plmctl.attention.patterns.base import MaskMod, Pattern
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.core.batch import Seq
from plmctl.core.parts import part_of


@part_of("pattern")
class Blockwise(Pattern):
    """`q // size == k // size`."""

    def __init__(self, *, size: int) -> None:
        self.size = size

    def sight(self, segment: int | None = None) -> Sight:
        return Sight((Offsets.between(1 - self.size, self.size - 1),), exact=False)

    def predicate(self, seq: Seq) -> MaskMod:
        return lambda b, h, q, k: q // self.size == k // self.size
