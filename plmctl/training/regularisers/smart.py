"""SMART (Jiang et al., 2020): predictions that are smooth around each text."""

from __future__ import annotations

from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.distill.base import Logits
from plmctl.training.regularisers.smoothness import Smoothness, diverge


@part_of("regulariser")
class Smart(Smoothness):
    """`D = KL(P || Q) + KL(Q || P)` of P at x and Q at x + r, for classes; `(p - q)^2` for numbers
    (Jiang et al., 2020, arXiv:1911.03437, sec. 3.1).

    Both sides learn. The proximal point of sec. 3.2 is `stabiliser=[proximal]`. Differs: both
    passes drop the same values.
    """

    def distance(self, moved: Logits, clean: Logits, positions: Tensor) -> Tensor:
        q, p = moved.gather(positions), clean.gather(positions)
        if not self.chooses:
            return (q - p).square().sum(-1)
        return diverge(p, q) + diverge(q, p)
