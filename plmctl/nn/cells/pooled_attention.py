"""Attention by distances whose queries may be fewer than its keys (Dai et al., 2020: Funnel)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.nn.cells.base import CellFacts, RowSize, Work, split_heads
from plmctl.nn.cells.relative_attention import RelativeAttention, RelativeSettings
from plmctl.nn.divided import Plan
from plmctl.nn.env import Env, Streams
from plmctl.nn.relations import RelativeOp


@dataclass(frozen=True, kw_only=True, eq=False)
class PooledOp(RelativeOp):
    """Attention over tokens with known distances, whose keys may be those before a pooling."""

    # the first token has neither a distance nor a segment
    lone_first: bool


@part_of("cells")
class PooledAttention(RelativeAttention):
    """`out(softmax(A / sqrt(D)) v)`, A_ij = (q_i + u) k_j + c_ij ((q_i + v) W_r R_{i-j} + (q_i + s)
    e_{[segment i = segment j]}).

    [B, Tq, W] -> [B, Tq, W]. R, u, v, s as in `RelativeAttention`. Keys and values are made of the
    stream `unpooled` [B, Tk, W], or without it of the text. The factor c_ij is 0 if i or j is the
    first token, and that token stays apart in pooling. Otherwise it is 1. Keys, values and the
    output have biases, queries have none. (Dai et al., 2020, arXiv:2006.03236, sec. 2.2 and
    appendix A.2; laiguokun/Funnel-Transformer, ops.py.) The factorised and the
    shifted scores of the released code are the same numbers.
    """

    facts = CellFacts(
        computes="attention",
        reads=frozenset({"text", "unpooled"}),
        cached=False,
        biased=False,
        turned=False,
    )

    def __init__(self, **settings: Unpack[RelativeSettings]) -> None:
        super().__init__(**settings, segments=True)
        width, inner = settings["width"], self.num_heads * self.head_width
        self.kv, self.out = nn.Linear(width, 2 * inner), nn.Linear(inner, width)

    def work(self, row: RowSize) -> Work:
        """The cost with `row.keys` keys, and as many distances as queries and keys together."""
        keys = row.tokens if row.keys is None else row.keys
        inner, distances = self.num_heads * self.head_width, row.tokens + keys
        macs: float = row.tokens * (self.q.weight.numel() + self.out.weight.numel())
        macs += keys * self.kv.weight.numel() + distances * self.place.weight.numel()
        scores = row.tokens * (2 * keys + distances)
        kept = row.tokens * (inner + self.out.out_features) + (2 * keys + distances) * inner
        return Work(macs, scores * inner, kept + scores * self.num_heads)

    def plan_division(self) -> Plan:
        return {}

    def forward(self, streams: Streams, env: Env) -> Tensor:
        op, x = env.ops["text"], streams["text"]
        if not isinstance(op, PooledOp):
            allowed = "a model that pools: no other model states the distances of pooled tokens"
            raise ConfigError("model.stack.cells", type(self).__name__, allowed, fix="model=funnel")
        heads, unpooled = (self.num_heads, self.head_width), streams.get("unpooled")
        (q,) = split_heads(self.q(x), *heads)  # [B, H, Tq, D]
        k, v = split_heads(self.kv(x if unpooled is None else unpooled), *heads)
        bias = self._score_distances(q, op.relations, env)
        bias = bias + self._score_segments(q, op.relations.apart)
        if op.lone_first:
            bias = F.pad(bias[..., 1:, 1:], (1, 0, 1, 0))
        q, dropout = q + self.content_bias.to(q.dtype), self.dropout if self.training else 0.0
        y = op(q, k, v, env, dropout=dropout, bias=lambda *_: bias, weigh=self.weigh)
        return self.out(y.transpose(1, 2).flatten(2))

    def _score_segments(self, q: Tensor, apart: Tensor | None) -> Tensor:
        """[B, H, Tq, Tk | 1] the scaled scores of equal and of different segments."""
        assert self.segments is not None
        assert self.segment_bias is not None
        q = (q + self.segment_bias.to(q.dtype)) * self.head_width**-0.5
        same, different = ((q * each.to(q.dtype)).sum(-1, keepdim=True) for each in self.segments)
        return same if apart is None else torch.where(apart, different, same)
