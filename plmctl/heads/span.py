"""The extractive question-answering head (Devlin et al., 2019, sec. 4.2)."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.heads.base import About, Head
from plmctl.heads.inner import Inner, InnerSettings


@part_of("heads")
class Span(Inner, Head):
    """`linear(h)`, [..., W] -> [..., 2]: the logits of being the first and the last token of the
    answer. `dense`, `activation`, `dense_bias`, `norm_eps`, `norm_bias`: a layer before the map, as
    in `heads.classify.Classify` (ModernBERT).
    """

    about: About = "spans"
    of_task = True

    def __init__(self, *, width: int, **inner: Unpack[InnerSettings]) -> None:
        super().__init__(width=width, **inner)
        self.linear = nn.Linear(width, 2)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(self.transform(features))
