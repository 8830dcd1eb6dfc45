"""The head of replaced-token detection (Clark et al., 2020, arXiv:2003.10555, sec. 2, and its
code).
"""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.heads.base import About, Head
from plmctl.nn.cells.feedforward import find_activation


@part_of("heads")
class Discriminator(Head):
    """`linear(activation(dense(h)))`, [..., W] -> [...]: the logit of a token having been
    replaced (above 0: it was).
    """

    about: About = "tokens"

    def __init__(self, *, width: int, activation: str = "gelu") -> None:
        super().__init__()
        self.activation = find_activation(activation)
        self.dense = nn.Linear(width, width)
        self.linear = nn.Linear(width, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(self.activation(self.dense(features)))[..., 0]
