"""From the states of tokens to vectors that are compared with those of entities (ERNIE; Zhang et
al., 2019).
"""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.heads.base import About, Head
from plmctl.nn.cells.feedforward import find_activation


@part_of("heads")
class EntityProjection(Head):
    """`norm(activation(linear(h)))`, [..., W] -> [..., E] (thunlp/ERNIE, modeling.py,
    BertEntPredictionHead).
    """

    about: About = "features"

    def __init__(
        self, *, width: int, entity_width: Count, activation: str = "gelu", eps: float = 1e-12
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(width, entity_width)
        self.activation = find_activation(activation)
        self.norm = nn.LayerNorm(entity_width, eps=eps)

    def forward(self, features: Tensor) -> Tensor:
        return self.norm(self.activation(self.linear(features)))  # type: ignore[no-any-return]
