"""The tokens of the own block."""

from __future__ import annotations

import torch
from torch import Tensor

from plmctl.attention.patterns.base import Full, MaskMod, Pattern
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.attention.patterns.strided import check_stride
from plmctl.core.batch import Seq
from plmctl.core.parts import part_of


@part_of("pattern")
class OwnBlock(Pattern):
    """`floor(q / stride) = floor(k / stride)`: a row is cut into blocks of `stride` tokens (Child
    et al., 2019, arXiv:1904.10509, sec. 4.3: A^(1) of fixed attention, there among earlier tokens).
    """

    def __init__(self, *, stride: int) -> None:
        self.stride = check_stride(stride)

    def simplify(self, seq: Seq) -> Pattern:
        return Full() if self.stride >= seq.ids.shape[1] else self

    def sight(self, segment: int | None = None) -> Sight:
        offsets = Offsets.between(1 - self.stride, self.stride - 1)
        return Sight((offsets,), exact=False)

    def blocks(self, seq: Seq, size: int) -> Tensor:
        first = torch.arange(0, seq.ids.shape[1], size, device=seq.ids.device)
        low, high = first // self.stride, (first + size - 1) // self.stride
        return ((low[:, None] <= high) & (low <= high[:, None]))[None]

    def thin(self, gap: int, seq: Seq) -> Pattern | None:
        return None if self.stride % gap else OwnBlock(stride=self.stride // gap)

    def predicate(self, seq: Seq) -> MaskMod:
        return lambda b, h, q, k: q // self.stride == k // self.stride
