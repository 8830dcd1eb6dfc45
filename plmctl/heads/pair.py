"""The head of decisions about two segments (Devlin et al., 2019, sec. 3.1, task 2)."""

from __future__ import annotations

from torch import Tensor, nn


class PairHead(nn.Module):
    """`linear(pooled)`, [..., W] -> [..., K]; next-sentence prediction has K = 2, 0 = B follows A."""

    def __init__(self, *, width: int, num_classes: int = 2) -> None:
        super().__init__()
        self.linear = nn.Linear(width, num_classes)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features)
