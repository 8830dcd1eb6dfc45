"""A sliding window with gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from plmctl.attention.patterns.base import LONGEST, Full, MaskMod, Pattern, View
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.attention.patterns.window import Window, check_reach
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of


@part_of("pattern")
class Dilated(Pattern):
    """`|q - k| <= reach d_h  and  (q - k) mod d_h = 0`: a window with gaps, d_h = `dilation[h]`
    (Beltagy et al., 2020, arXiv:2004.05150, sec. 3.1).

    A single dilation serves every head; `dilation` must otherwise name one for each head.
    """

    def __init__(self, *, reach: int, dilation: Sequence[int]) -> None:
        self._reach = check_reach(reach)
        self.dilation = tuple(dilation)
        self.heads = len(dilation)
        if not dilation or min(dilation) < 1 or max(dilation) * reach > LONGEST:
            allowed = f"1 or more for each head, times reach at most {LONGEST:,}"
            raise ConfigError("dilation", list(dilation), allowed, fix="dilation=[2]")

    def simplify(self, seq: Seq) -> Pattern:
        return Full() if set(self.dilation) == {1} and self._reach >= seq.ids.shape[1] - 1 else self

    def sight(self, segment: int | None = None) -> Sight:
        steps = np.arange(-self._reach, self._reach + 1)
        return Sight(tuple(Offsets.each(steps * gap) for gap in self.dilation))

    def predicate(self, seq: Seq) -> MaskMod:
        gaps = torch.tensor(self.dilation, device=seq.ids.device)

        def allowed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            gap = gaps[h] if self.heads > 1 else gaps[0]
            return ((q - k).abs() <= self._reach * gap) & ((q - k) % gap == 0)

        return allowed

    def of_head(self, head: int) -> Pattern:
        (gap,) = self.dilation[head : head + 1] if self.heads > 1 else self.dilation
        return Window(reach=self._reach) if gap == 1 else Dilated(reach=self._reach, dilation=[gap])

    def views(self) -> list[View]:
        return [View(self.dilation[0] if self.heads == 1 else 1, self)]

    def thin(self, gap: int, seq: Seq) -> Pattern | None:
        if self.heads > 1:
            return None
        # offsets that are multiples of both: of the dilation, and of the gap
        both = math.lcm(self.dilation[0], gap)
        reach, step = self._reach * self.dilation[0] // both, both // gap
        return Window(reach=reach) if step == 1 else Dilated(reach=reach, dilation=[step])
