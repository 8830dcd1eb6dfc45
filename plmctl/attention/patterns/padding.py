"""No query sees padding."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from plmctl.attention.patterns.base import Full, MaskMod, Pattern
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.core.batch import Seq


class Padding(Pattern):
    """`real[b, k]`: no query sees a padding key; padding queries are not masked, no loss reads
    them.
    """

    static = False

    def simplify(self, seq: Seq) -> Pattern:
        return Full() if seq.full else self

    def sight(self, segment: int | None = None) -> Sight:
        # a full row has no padding
        return Sight((Offsets.everything(),), exact=segment is not None)

    def blocks(self, seq: Seq, size: int) -> Tensor:
        real = F.pad(seq.real, (0, -seq.ids.shape[1] % size)).unflatten(1, (-1, size)).any(2)
        return real[:, None, :].expand(-1, real.shape[1], -1)

    def predicate(self, seq: Seq) -> MaskMod:
        real = seq.real
        return lambda b, h, q, k: real[b, k]

    def thin(self, gap: int, seq: Seq) -> Pattern:
        return self
