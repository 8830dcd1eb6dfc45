"""The last tokens of every block."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.attention.patterns.base import MaskMod, Pattern
from plmctl.attention.patterns.strided import check_stride
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of


@part_of("pattern")
class Summaries(Pattern):
    """`k mod stride >= stride - columns`: all tokens see the last `columns` of every block of
    `stride`, which sum it up. (Child et al., 2019, arXiv:1904.10509, sec. 4.3: A^(2) of fixed
    attention; the paper restricts it to earlier tokens.)
    """

    def __init__(self, *, stride: int, columns: int) -> None:
        self.stride, self.columns = check_stride(stride), columns
        if not 1 <= columns <= stride:
            allowed = f"1 to stride={stride}, the tokens of a block that sum it up"
            raise ConfigError("columns", columns, allowed, fix=f"columns={max(1, stride // 4)}")

    def blocks(self, seq: Seq, size: int) -> Tensor:
        length = seq.ids.shape[1]
        place = torch.arange(length, device=seq.ids.device)
        seen = F.pad(place % self.stride >= self.stride - self.columns, (0, -length % size))
        seen = seen.unflatten(0, (-1, size)).any(1)
        return seen.expand(1, len(seen), -1)

    def predicate(self, seq: Seq) -> MaskMod:
        first = self.stride - self.columns
        return lambda b, h, q, k: k % self.stride >= first
