"""The head that predicts entities (Yamada et al., 2020: LUKE)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.nn.cells.feedforward import find_activation


@part_of("heads")
class EntityLMHead(nn.Module):
    """`m = norm(activation(dense(h)))`, [P, W] -> [P, entity_width], and the bias of each entity;
    logits are `m . b_e + bias_e` with the table b of the model (Yamada et al., 2020,
    arXiv:2010.01057, sec. 3.3; transformers, `EntityPredictionHead`).
    """

    def __init__(
        self, *, width: int, entity_width: Count, count: Count, activation: str, eps: float = 1e-12
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(width, entity_width)
        self.activation = find_activation(activation)
        self.norm = nn.LayerNorm(entity_width, eps=eps)
        self.bias = nn.Parameter(torch.zeros(count))

    def forward(self, features: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(features)))

    def score(self, features: Tensor, table: Tensor) -> Tensor:
        """[P, count] logits of the entities in `table [count, entity_width]`."""
        return self(features) @ table.T + self.bias
