"""ALUM (Liu et al., 2020): virtual adversarial training, in pretraining and after."""

from __future__ import annotations

import torch
from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.distill.base import Logits
from plmctl.training.regularisers.smoothness import Smoothness, diverge


@part_of("regulariser")
class VirtualAdversary(Smoothness):
    """`D = KL(P || Q)` of P at x, which is given, and Q at x + r, which learns; `(p - q)^2` for
    numbers (Liu et al., 2020, arXiv:2004.08994, sec. 3.2 and algorithm 1; Miyato et al., 2018,
    arXiv:1704.03976).

    Differs: both passes drop the same values.
    """

    def distance(self, moved: Logits, clean: Logits, positions: Tensor) -> Tensor:
        q = moved.gather(positions)
        with torch.no_grad():
            p = clean.gather(positions)
        return diverge(p, q) if self.chooses else (q - p).square().sum(-1)
