"""A sliding window."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.attention.patterns.base import LONGEST, Full, MaskMod, Pattern
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of


def check_reach(reach: int) -> int:
    """Return `reach`; ConfigError if no window can have it."""
    if not 0 <= reach <= LONGEST:
        allowed = f"0 (only the token itself) to {LONGEST:,} tokens to either side"
        raise ConfigError("reach", reach, allowed, fix="reach=128")
    return reach


@part_of("pattern")
class Window(Pattern):
    """`|q - k| <= reach`: a sliding window of 2 reach + 1 keys (Beltagy et al., 2020,
    arXiv:2004.05150, sec. 3.1).

    `reach` is a number, or one for each layer: small below and large above (sec. 4.1). A layer
    whose entry is null sees all tokens: ModernBERT's global layers (Warner et al., 2024,
    arXiv:2412.13663, sec. 2.1.2).
    """

    def __init__(self, *, reach: int | Sequence[int | None]) -> None:
        own = [reach] if isinstance(reach, int) else reach
        self._reaches = tuple(LONGEST if each is None else check_reach(each) for each in own)
        if not self._reaches:
            raise ConfigError("reach", [], "a number, or one for each layer", fix="reach=128")
        self._reach, self.layers = max(self._reaches), len(self._reaches)

    def at_layer(self, layer: int) -> Pattern:
        if self.layers == 1:
            return self
        return Full() if self._reaches[layer] == LONGEST else Window(reach=self._reaches[layer])

    def simplify(self, seq: Seq) -> Pattern:
        return Full() if min(self._reaches) >= seq.ids.shape[1] - 1 else self

    def sight(self, segment: int | None = None) -> Sight:
        end = None if self._reach == LONGEST else self._reach
        return Sight((Offsets.between(None if end is None else -end, end),))

    def thin(self, gap: int, seq: Seq) -> Pattern:
        return Window(reach=self._reach // gap)

    def predicate(self, seq: Seq) -> MaskMod:
        return lambda b, h, q, k: (q - k).abs() <= self._reach
