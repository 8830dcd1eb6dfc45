"""Graph attention over a given structure (Veličković et al., 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.stated import check_sight
from plmctl.core.errors import UsageError
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work, check_heads
from plmctl.nn.env import Env, Streams


@part_of("cells")
class GraphAttention(Cell):
    """`h'_i = elu(sum_j alpha_ij z_j)`, heads side by side, with z = V h and

        alpha_ij = softmax_j(leaky_relu(a . z_i + b . z_j)) over the neighbours j of i

    [B, T, W] -> [B, T, W]. `structure` says who is whose neighbour, whatever the pattern of the
    model lets tokens see; padding and other documents are nobody's. (Veličković et al., 2018,
    arXiv:1710.10903, eq. 1 to 5, slope 0.2.)

    Args:
        width: W.
        num_heads: heads, each of W / heads columns.
        structure: the neighbours, such as `Linked`.
        slope: The slope of leaky_relu below 0.
        dropout: The rate of dropout on alpha.
    """

    projected_by = "values"
    facts = CellFacts(computes="attention", ahead=True, biased=False, turned=False)

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        structure: Pattern,
        dropout: DropoutRate,
        slope: float = 0.2,
    ) -> None:
        super().__init__()
        check_heads(num_heads, width)
        self.num_heads, self.slope, self.dropout = num_heads, slope, dropout
        check_sight(structure)
        self.pattern = structure & Padding() & Documents()
        self.values = nn.Linear(width, width, bias=False)
        self.ask = nn.Linear(width // num_heads, num_heads, bias=False)  # a of each head
        self.answer = nn.Linear(width // num_heads, num_heads, bias=False)  # b of each head

    def work(self, row: RowSize) -> Work:
        own, pairs = super().work(row), row.tokens * row.tokens * self.num_heads
        return Work(own.macs, pairs * self.values.out_features / self.num_heads, own.kept + pairs)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        if env.seq is None or env.cache is not None:
            raise UsageError("GraphAttention cannot read token by token: links lead anywhere")
        z = self.values(streams["text"]).unflatten(-1, (self.num_heads, -1))  # [B, T, H, D]
        asks, answers = (z * part.weight for part in (self.ask, self.answer))
        scores = asks.sum(-1)[:, :, None] + answers.sum(-1)[:, None]  # [B, T, T, H]
        scores = F.leaky_relu(scores, self.slope).permute(0, 3, 1, 2)
        allowed = self.pattern.dense(env.seq)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        weights = scores.softmax(-1).nan_to_num()  # padding has no neighbour
        if self.training and self.dropout:
            weights = F.dropout(weights, self.dropout)
        return F.elu((weights @ z.transpose(1, 2)).transpose(1, 2).flatten(2))
