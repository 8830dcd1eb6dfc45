"""A token sees those before it in a factorisation order."""

from __future__ import annotations

from plmctl.attention.patterns.base import Full, MaskMod, Pattern
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.core.batch import Seq


class Order(Pattern):
    """`order[b, k] <= order[b, q]`, with `strict` `<`: tokens that come first in the factorisation
    order; everything if there is no order.

    The content stream of XLNet, which sees itself, and with `strict` its query stream, which does
    not (Yang et al., 2019, arXiv:1906.08237, sec. 2.3).
    """

    static = False

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict

    def simplify(self, seq: Seq) -> Pattern:
        return self if "order" in seq.tracks else Full()

    def sight(self, segment: int | None = None) -> Sight:
        return Sight((Offsets.everything(),), exact=segment is not None)

    def predicate(self, seq: Seq) -> MaskMod:
        order = seq.tracks["order"]
        if self.strict:
            return lambda b, h, q, k: order[b, k] < order[b, q]
        return lambda b, h, q, k: order[b, k] <= order[b, q]

    def thin(self, gap: int, seq: Seq) -> Pattern:
        return self
