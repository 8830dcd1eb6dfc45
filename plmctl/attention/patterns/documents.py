"""Documents packed into one row stay apart."""

from __future__ import annotations

import torch
from torch import Tensor

from plmctl.attention.patterns.base import Full, MaskMod, Pattern
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.core.batch import Seq


class Documents(Pattern):
    """`document[b, q] = document[b, k]`: the documents packed into one row stay apart;
    everything where rows are not packed.
    """

    static = False

    def simplify(self, seq: Seq) -> Pattern:
        return self if "document" in seq.tracks else Full()

    def sight(self, segment: int | None = None) -> Sight:
        return Sight((Offsets.everything(),), exact=segment is not None)

    def blocks(self, seq: Seq, size: int) -> Tensor:
        document = seq.tracks["document"]
        # padding (-1) follows the last document: with the next number, the range of the numbers in
        # a block stays small
        number = torch.where(document < 0, document.amax(1, keepdim=True) + 1, document)
        number = torch.cat([number, number[:, -1:].expand(-1, -number.shape[1] % size)], 1)
        inside = number.unflatten(1, (-1, size))
        low, high = inside.amin(2), inside.amax(2)
        return (low[:, :, None] <= high[:, None, :]) & (low[:, None, :] <= high[:, :, None])

    def predicate(self, seq: Seq) -> MaskMod:
        document = seq.tracks["document"]
        return lambda b, h, q, k: document[b, q] == document[b, k]

    def thin(self, gap: int, seq: Seq) -> Pattern:
        return self
