"""Attention to the own chunk and the one before, as in the Reformer's other layers (Kitaev et al.,
2020).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.attention.kernels.dense import Mask, attend, attend_by
from plmctl.attention.op import BoundOp
from plmctl.core.graphs import outside_graphs
from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work, check_heads, check_reading
from plmctl.nn.chunks import with_previous
from plmctl.nn.divided import CutColumns, CutRows, Plan
from plmctl.nn.env import Env, Streams
from plmctl.nn.weights import WeightsFactory, make_weights


@part_of("cells")
class LocalAttention(Cell):
    """`out(softmax(q k^T / sqrt(D)) v)` over the keys of two chunks: with c = i // chunk, token i
    sees those of chunks c - 1 and c.

    [B, T, W] -> [B, T, W], in time and memory linear in the length of a row. The rows of
    `qkv.weight [3 H D, W]` are all of q, then k, then v, each ordered (head, D). Chunks are counted
    from the first token of a row that is no padding; packed documents do not see each other. With
    `wraps`, the first chunk of a longer row follows the last one, which matters where `causal` is
    false (google/trax and transformers; not in the paper). `weights` replaces softmax
    (nn/entmax.py). The row need be no multiple of `chunk`. (arXiv:2001.04451, sec. 5; google/trax,
    layers/research/efficient_attention.py, SelfAttention.)
    """

    projected_by = "out"
    facts = CellFacts(computes="attention")

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        dropout: DropoutRate,
        chunk: Count,
        causal: bool,
        wraps: bool = False,
        head_width: int | None = None,
        bias: bool = False,
        weights: WeightsFactory | None = None,
    ) -> None:
        super().__init__()
        if head_width is None:
            check_heads(num_heads, width)
        self.num_heads, self.head_width = num_heads, head_width or width // num_heads
        self.chunk, self.wraps, self.dropout = chunk, wraps, dropout
        self.facts = replace(self.facts, ahead=not causal)
        inner = num_heads * self.head_width
        self.qkv = nn.Linear(width, 3 * inner, bias=bias)
        self.out = nn.Linear(inner, width, bias=bias)
        self.weigh = make_weights(weights, num_heads)

    def work(self, row: RowSize) -> Work:
        own, inner = super().work(row), self.out.in_features
        pairs = row.tokens * min(2 * self.chunk, row.tokens)
        kept = 2 * pairs * self.num_heads + 5 * row.tokens * inner
        return Work(own.macs, 2 * pairs * inner, own.kept + kept)

    def plan_division(self) -> Plan:
        """How its maps are divided, by heads."""
        if self.weigh is not None:
            return {}
        return {"qkv": CutRows(self.num_heads, "size.num_heads", parts=3), "out": CutColumns()}

    @outside_graphs  # sizes are values
    def forward(self, streams: Streams, env: Env) -> Tensor:
        projected = self.qkv(streams["text"]).unflatten(-1, (3, -1, self.head_width))
        q, k, v = projected.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, T, D]
        op = self.team.bind(env, "text")
        check_reading(self, env)
        q, k = op.position.rotate(q, k, op.positions, op.positions)
        k, v = env.extend(k, v)
        documents, length = env.all_documents, k.shape[2]
        # [B | 1] padding before the first token
        lead = (
            torch.zeros(1, dtype=torch.long, device=k.device)
            if documents is None
            else (documents >= 0).int().argmax(1)
        )
        if length > q.shape[2] or length <= self.chunk:
            y = self._see_under_mask(q, k, v, documents, lead, op)
        else:
            spare = -length % self.chunk
            q, k, v = (F.pad(x, (0, 0, 0, spare)) for x in (q, k, v))
            if documents is None and spare:
                documents = torch.zeros(1, length, dtype=torch.long, device=k.device)
            if documents is not None:
                documents = F.pad(documents, (0, spare), value=-1)
            y = self._see_chunks(q, k, v, documents, lead, op)[:, :, :length]
        return self.out(y.transpose(1, 2).flatten(2))

    def _see_under_mask(
        self, q: Tensor, k: Tensor, v: Tensor, documents: Tensor | None, lead: Tensor, op: BoundOp
    ) -> Tensor:
        """[B, H, T, D] for the last T of all tokens."""
        length, new = k.shape[2], q.shape[2]
        tokens = torch.arange(length, device=k.device)
        chunk = (tokens - lead[:, None]) // self.chunk  # [B | 1, L]
        own = tokens[-new:, None]
        back = chunk[:, -new:, None] - chunk[:, None, :]  # [B | 1, T, L]
        allowed = (back == 0) | (back == 1)
        allowed = allowed if self.facts.ahead else allowed & (tokens <= own)
        if documents is not None:
            allowed = allowed & (documents[:, -new:, None] == documents[:, None, :])
        positions = op.positions if op.all_positions is None else op.all_positions
        bias = op.position.bias(q, op.positions, positions)
        return self._attend(q, k, v, allowed[:, None], bias)

    def _see_chunks(
        self, q: Tensor, k: Tensor, v: Tensor, documents: Tensor | None, lead: Tensor, op: BoundOp
    ) -> Tensor:
        """[B, H, L, D] for all tokens, L a multiple of `chunk`."""
        rows, length, m = q.shape[0], k.shape[2], self.chunk
        tokens = (torch.arange(length, device=k.device) + lead[:, None]) % length  # [B | 1, L]
        moved = bool(lead.any())
        if moved:
            q, k, v = (x.gather(2, tokens[:, None, :, None].expand_as(x)) for x in (q, k, v))
        q, k, v = (x.unflatten(2, (-1, m)) for x in (q, k, v))  # [B, H, N, m, D]
        k, v = with_previous(k), with_previous(v)
        place = torch.arange(length, device=k.device).view(1, 1, -1, m)
        i, j = place[..., None], with_previous(place)[..., None, :]
        allowed = (j >= 0) if self.facts.ahead else j <= i  # [1, 1, N, m, 2 m]
        if not self.wraps:
            allowed = allowed & (j <= i // m * m + m - 1)
        if documents is not None:
            of = documents.gather(1, tokens.expand(documents.shape[0], -1)).view(
                -1, 1, length // m, m
            )
            allowed = allowed & (of[..., None] == with_previous(of)[..., None, :])
        positions = op.positions.expand(rows, -1)
        positions = F.pad(positions, (0, length - positions.shape[1]))
        positions = positions.gather(1, tokens.expand(rows, -1)).view(rows, 1, -1, m)
        # each chunk as a row of the batch
        own, around = positions[:, 0].flatten(0, 1), with_previous(positions)[:, 0].flatten(0, 1)
        q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
        allowed = allowed.expand(rows, -1, -1, -1, -1).transpose(1, 2).flatten(0, 1)
        y = self._attend(q, k, v, allowed, op.position.bias(q, own, around))
        y = y.unflatten(0, (rows, -1)).transpose(1, 2).flatten(2, 3)
        if not moved:
            return y
        back = (torch.arange(length, device=k.device) - lead[:, None]) % length
        return y.gather(2, back[:, None, :, None].expand_as(y))

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, bias: Tensor | None
    ) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        mask = Mask(allowed)
        if self.weigh is not None:
            return attend_by(self.weigh, q, k, v, plan=mask, bias=bias, dropout=dropout)
        with self.team.draws(dropout):
            return attend(q, k, v, mask=mask, bias=bias, dropout=dropout)
