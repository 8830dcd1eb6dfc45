"""The copy mechanism of All-Tokens MLM (Clark et al., 2020, arXiv:2003.10555, sec. 3.4)."""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.heads.base import About, Head


@part_of("heads")
class CopyGate(Head):
    """`linear(h)`, [..., W] -> [...]: the logit of the input token being the original, so that
    it is copied.
    """

    about: About = "tokens"

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features)[..., 0]
