"""Tokens at multiples of a distance."""

from __future__ import annotations

import math

from plmctl.attention.patterns.base import LONGEST, Full, MaskMod, Pattern, View
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of


def check_stride(stride: int) -> int:
    """Return `stride`; ConfigError if no pattern can have it."""
    if not 1 <= stride <= LONGEST:
        allowed = f"1 to {LONGEST:,} tokens"
        raise ConfigError("stride", stride, allowed, fix="stride=128")
    return stride


@part_of("pattern")
class Strided(Pattern):
    """`(q - k) mod stride = 0` (Child et al., 2019, arXiv:1904.10509, sec. 4.3: A^(2) of strided
    attention, there among earlier tokens).
    """

    def __init__(self, *, stride: int) -> None:
        self.stride = check_stride(stride)

    def simplify(self, seq: Seq) -> Pattern:
        return Full() if self.stride == 1 else self

    def sight(self, segment: int | None = None) -> Sight:
        return Sight((Offsets.everything(),), exact=self.stride == 1)

    def views(self) -> list[View]:
        return [View(self.stride, self)]

    def thin(self, gap: int, seq: Seq) -> Pattern:
        step = self.stride // math.gcd(self.stride, gap)
        return Full() if step == 1 else Strided(stride=step)

    def predicate(self, seq: Seq) -> MaskMod:
        return lambda b, h, q, k: (q - k) % self.stride == 0
