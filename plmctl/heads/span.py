"""The extractive question-answering head (Devlin et al., 2019, sec. 4.2)."""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.heads.base import About, Head
from plmctl.heads.inner import Inner


@part_of("heads")
class Span(Inner, Head):
    """`linear(h)`, [..., W] -> [..., 2]: the logits of being the first and the last token of the
    answer. `dense`, `activation`, `dense_bias`, `norm_eps`, `norm_bias`: a layer before the map, as
    in `heads.classify.Classify` (ModernBERT).
    """

    about: About = "spans"
    of_task = True

    def __init__(
        self,
        *,
        width: int,
        dense: bool = False,
        activation: str = "gelu",
        dense_bias: bool = True,
        norm_eps: float | None = None,
        norm_bias: bool = True,
    ) -> None:
        super().__init__()
        self.make_inner(
            width,
            width,
            dense=dense,
            activation=activation,
            bias=dense_bias,
            norm_eps=norm_eps,
            norm_bias=norm_bias,
        )
        self.linear = nn.Linear(width, 2)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(self.transform(features))
