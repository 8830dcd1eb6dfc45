"""A source that all tokens see, and a target that is read from left to right."""

from __future__ import annotations

from plmctl.attention.patterns.base import MaskMod, Pattern
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.core.batch import Seq
from plmctl.core.parts import part_of


@part_of("pattern")
class CausalWithPrefix(Pattern):
    """`segment[b, k] = source  or  k <= q`: the segment `source` is seen by all, what follows it
    left to right.

    (Dong et al., 2019, arXiv:1905.03197, sec. 2.3.) A query of the source sees nothing of the
    target, since all of it lies to the right.
    """

    needs = frozenset({"tracks.segment"})
    static = False

    def __init__(self, *, source: int = 0) -> None:
        self.source = source

    @property
    def prefix_segments(self) -> tuple[int, int] | None:
        return self.source, self.source + 1

    def sight(self, segment: int | None = None) -> Sight:
        if segment is None:
            return Sight.unknown()
        return Sight((Offsets.between(None, None if segment == self.source else 0),))

    def predicate(self, seq: Seq) -> MaskMod:
        segment = seq.tracks["segment"]
        return lambda b, h, q, k: (segment[b, k] == self.source) | (k <= q)

    def thin(self, gap: int, seq: Seq) -> Pattern:
        return self
