"""The extractive question-answering head (Devlin et al., 2019, sec. 4.2)."""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.heads.base import About, Head


@part_of("heads")
class Span(Head):
    """`linear(h)`, [..., W] -> [..., 2]: the logits of being the first and the last token of the
    answer.
    """

    about: About = "spans"
    of_task = True

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 2)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features)
