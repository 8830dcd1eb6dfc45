"""The head of replaced-token detection (Clark et al., 2020, arXiv:2003.10555, sec. 2, and its
code).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.base import About, Head
from plmctl.nn.cells.feedforward import find_activation


@part_of("heads")
class Discriminator(Head):
    """`linear(activation(dense(h)))`, [..., W] -> [...]: the logit of a token having been
    replaced (above 0: it was).

    With `context`, rows [B, T, W] -> [B, T] by `norm(h_t + h_1)` for h_t: the first token stands
    for the row (microsoft/DeBERTa, deberta/ops.py: DeBERTa 3).
    """

    about: About = "tokens"
    ways: ClassVar[Sequence[str]] = ("replaced",)  # ways to score a text

    def __init__(
        self, *, width: int, activation: str = "gelu", context: bool = False, eps: float = 1e-7
    ) -> None:
        super().__init__()
        self.activation = find_activation(activation)
        self.norm = nn.LayerNorm(width, eps=eps) if context else None
        self.dense = nn.Linear(width, width)
        self.linear = nn.Linear(width, 1)

    def forward(self, features: Tensor) -> Tensor:
        if self.norm is not None:
            if features.dim() != 3:
                allowed = "false: only some tokens of a row are judged"
                raise ConfigError("heads.discriminator.context", True, allowed)
            features = self.norm(features + features[:, :1])
        return self.linear(self.activation(self.dense(features)))[..., 0]
