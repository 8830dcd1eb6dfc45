"""BERT's pooler (Devlin et al., 2019; released code): what the first token's state becomes
before a decision about the row.
"""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.heads.base import About, Head


@part_of("heads")
class Pooler(Head):
    """`tanh(dense(h))`, [..., W] -> [..., W]."""

    about: About = "features"

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, features: Tensor) -> Tensor:
        return self.dense(features).tanh()
