"""Self-attention of the entities of a text among themselves (ERNIE; Zhang et al., 2019)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work, check_heads, split_heads
from plmctl.nn.env import Env, Streams


@part_of("cells")
class EntityAttention(Cell):
    """`out(softmax(q k^T / sqrt(D)) v)` over the stream `entity`, [B, T, E] -> [B, T, E]. A token
    sees the tokens of its own document that have an entity, and the first token of the document.

    That one has no entity, so that no token without others sees nothing. (Zhang et al., 2019,
    arXiv:1905.07129, eq. 2; thunlp/ERNIE, modeling.py.)
    """

    projected_by = "out"
    facts = CellFacts(
        computes="attention",
        reads=frozenset({"entity", "entity_mask"}),
        writes="entity",
        ahead=True,
    )

    def __init__(self, *, entity_width: Count, entity_heads: Count, dropout: DropoutRate) -> None:
        super().__init__()
        check_heads(entity_heads, entity_width)
        self.facts = replace(self.facts, stream_width=entity_width)
        self.num_heads, self.head_width = entity_heads, entity_width // entity_heads
        self.dropout = dropout
        self.qkv = nn.Linear(entity_width, 3 * entity_width)
        self.out = nn.Linear(entity_width, entity_width)

    def work(self, row: RowSize) -> Work:
        own, pairs = super().work(row), 2 * row.tokens * row.tokens * self.num_heads
        return Work(own.macs, pairs * self.head_width, own.kept + pairs)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        q, k, v = split_heads(self.qkv(streams["entity"]), self.num_heads, self.head_width)
        seen = _see(streams["entity_mask"][..., 0] > 0, env.documents)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=dropout)
        return self.out(mixed.transpose(1, 2).flatten(2))


def _see(marked: Tensor, documents: Tensor | None) -> Tensor:
    """[B, 1, T | 1, T] bool: which keys a query sees."""
    if documents is None:
        return marked[:, None, None]
    same = documents[:, :, None] == documents[:, None]  # [B, T, T]; padding among itself
    itself = torch.eye(marked.shape[1], dtype=torch.bool, device=marked.device)
    return (same & (marked[:, None] | itself & (documents < 0)[:, None]))[:, None]
