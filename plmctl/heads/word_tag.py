"""Tags of words in pretraining (Ke et al., 2020, SentiLARE): a class, by the state of a word."""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.heads.base import About, ClassHead


@part_of("heads")
class WordTag(ClassHead):
    """`linear(h)`, [..., W] -> [..., K]."""

    about: About = "tokens"

    def __init__(self, *, width: int, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.linear = nn.Linear(width, num_classes)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features)
