"""The vector of a row where rows are compared with each other: the state itself, or a linear map
of it.
"""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.heads.base import About, Head


@part_of("heads")
class Vector(Head):
    """`h`, or `linear(h)` with `columns` columns, [..., vectors W] -> [..., C] (Snell et al., 2017,
    arXiv:1703.05175: prototypes in the space of the states).

    `vectors`: how many times W columns stand for a row.
    """

    about: About = "features"

    def __init__(self, *, width: int, columns: Count | None = None, vectors: int = 1) -> None:
        super().__init__()
        self.linear = nn.Identity() if columns is None else nn.Linear(vectors * width, columns)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features)  # type: ignore[no-any-return]
