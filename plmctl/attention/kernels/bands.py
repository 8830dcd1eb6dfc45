"""Bands: patterns in which a query sees the keys up to a distance back and ahead, in packed and
padded rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.attention.patterns.base import And, Pattern
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.offsets import Offsets
from plmctl.attention.patterns.padding import Padding
from plmctl.core.batch import Seq


@dataclass(frozen=True)
class Band:
    """The keys that a query sees: up to `back` before it and `ahead` after it; None: all."""

    back: int | None
    ahead: int | None
    padding: bool  # whether padding is left out
    documents: bool  # whether documents of a row stay apart

    @classmethod
    def of(cls, pattern: Pattern) -> Band | None:
        """The band that a pattern is; None: it is none."""
        parts = pattern.parts if isinstance(pattern, And) else [pattern]
        offsets = Offsets.everything()
        for part in parts:
            if isinstance(part, Padding | Documents):
                continue
            sight = part.sight()
            if part.heads > 1 or not part.static or not sight.exact:
                return None
            offsets = offsets & sight.together()
        gaps = len(offsets.steps) > 2 - offsets.first
        if offsets.is_empty() or gaps or not offsets.contains(np.zeros(1))[0]:
            return None
        least, most = offsets.least(), offsets.most()
        kinds = {type(part) for part in parts}
        back = None if least is None else -least
        return cls(back, most, Padding in kinds, Documents in kinds)

    @property
    def window(self) -> tuple[int, int]:
        """The same for torch's function, -1: all."""
        return -1 if self.back is None else self.back, -1 if self.ahead is None else self.ahead

    @property
    def counts(self) -> bool:
        """Whether the distance between two tokens matters, not only their order."""
        return self.back is not None or self.ahead not in (0, None)

    def whole_blocks(self, seq: Seq, size: int) -> Tensor:
        """Where every query of a block sees every key of another, so that no mask is needed there.

        Returns:
            bool [B | 1, N, N], N = ceil(T / size), by row, block of queries, block of keys; False
                for a last block of fewer than `size` tokens.
        """
        missing = -seq.ids.shape[1] % size
        index = torch.arange((seq.ids.shape[1] + missing) // size, device=seq.ids.device)
        distance = (index[None, :] - index[:, None]) * size
        whole = torch.ones_like(distance, dtype=torch.bool)
        if self.back is not None:  # from the last query to the first key
            whole &= distance - size + 1 >= -self.back
        if self.ahead is not None:
            whole &= distance + size - 1 <= self.ahead
        if missing:
            whole[-1] = whole[:, -1] = False
        whole = whole[None]
        if self.padding:
            whole = whole & _cut(seq.real, size, missing, 0).all(2)[:, None, :]
        if self.documents:
            inside = _cut(seq.tracks["document"], size, missing, -1)
            low, high = inside.amin(2), inside.amax(2)
            one = low == high
            same = low[:, :, None] == low[:, None, :]
            whole = whole & one[:, :, None] & one[:, None, :] & same
        return whole


def _cut(x: Tensor, size: int, missing: int, fill: int) -> Tensor:
    """[B | 1, T] -> [B | 1, N, size]."""
    return F.pad(x, (0, missing), value=fill).unflatten(1, (-1, size))
