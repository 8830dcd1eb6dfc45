"""The head of decisions about two segments (Devlin et al., 2019, sec. 3.1, task 2)."""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.heads.base import About, ClassHead


@part_of("heads")
class PairHead(ClassHead):
    """`linear(pooled)`, [..., W] -> [..., K]: a logit for each relation that the format tells
    apart (`labels.pair`).
    """

    about: About = "rows"

    def __init__(self, *, width: int, num_classes: int = 2) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.linear = nn.Linear(width, num_classes)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features)
