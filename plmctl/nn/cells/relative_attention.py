"""Attention with distances instead of positions, and with memory (Dai et al., 2019:
Transformer-XL; Yang et al., 2019: XLNet).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NotRequired, TypedDict

import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work, check_heads, split_heads
from plmctl.nn.divided import CutColumns, CutRows, Plan
from plmctl.nn.env import Env, Streams
from plmctl.nn.relations import Relations, RelativeOp, compute_sinusoids, read_key_rows
from plmctl.nn.weights import WeightsFactory, make_weights


class RelativeSettings(TypedDict):
    """The settings of `RelativeAttention` that kinds of it pass on."""

    width: int
    num_heads: int
    dropout: DropoutRate
    head_width: NotRequired[int | None]
    weights: NotRequired[WeightsFactory | None]


@part_of("cells")
class RelativeAttention(Cell):
    """`out(softmax(A / sqrt(D)) v)`, A_ij = (q_i + u) k_j + (q_i + v) W_r R_{i-j} + (q_i + s)
    e_{[segment i = segment j]}.

    [B, Tq, W] -> [B, Tq, W]; R are sinusoids of the distance (`nn/relations.py`), u, v, s learned
    vectors of each head. Keys and values are made of the stream `memory` [B, M, W] and of the first
    `keys` rows of the text (`RelativeOp`). None means all rows. The rows after them are only
    queries: the query stream of XLNet. Without `segments` the last term is left out. No map has a
    bias. The rows of `kv.weight [2 H D, W]` are all of k, then v, each ordered (head, D).
    (arXiv:1901.02860, sec. 3.3; arXiv:1906.08237, sec. 2.5 and appendix A.2; zihangdai/xlnet,
    modeling.py: rel_attn_core.) Differs: only e_different - e_same is added, for different
    segments, since softmax ignores what all keys share. Each layer has u and v of its own (untie_r
    of the released code). `weights` replaces softmax (nn/entmax.py).
    """

    projected_by = "out"
    facts = CellFacts(computes="attention", reads=frozenset({"text", "memory"}))

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        dropout: DropoutRate,
        segments: bool = False,
        head_width: int | None = None,
        weights: WeightsFactory | None = None,
    ) -> None:
        super().__init__()
        if head_width is None:
            check_heads(num_heads, width)
        if width % 2:
            raise ConfigError(
                "size.width", width, "must be even: half of R are sines, half cosines"
            )
        self.num_heads = num_heads
        self.head_width = head_width or width // num_heads
        self.dropout = dropout
        inner, shape = num_heads * self.head_width, (num_heads, 1, self.head_width)
        self.q = nn.Linear(width, inner, bias=False)
        self.kv = nn.Linear(width, 2 * inner, bias=False)
        self.place = nn.Linear(width, inner, bias=False)
        self.out = nn.Linear(inner, width, bias=False)
        self.content_bias, self.place_bias = _draw(*shape), _draw(*shape)  # u, v
        self.segment_bias = _draw(*shape) if segments else None  # s
        self.segments = _draw(2, *shape) if segments else None  # e_same, e_different
        self.weigh = make_weights(weights, num_heads)

    def work(self, row: RowSize) -> Work:
        """The cost with M + T keys, and M + 2 T distances.

        Keys and values come from memory, too, and not from query rows; the map of distances is
        computed once for all rows.
        """
        linear = [part for part in self.modules() if isinstance(part, nn.Linear)]
        queries, inner = (1 + row.queries) * row.tokens, self.num_heads * self.head_width
        macs = queries * sum(part.weight.numel() for part in linear)
        macs += (
            row.memory - row.queries * row.tokens
        ) * self.kv.weight.numel() - queries * self.place.weight.numel()
        kept = queries * sum(part.out_features for part in linear)
        scores = queries * (3 * (row.tokens + row.memory) + row.tokens)
        return Work(macs, scores * inner, kept + scores * self.num_heads)

    def plan_division(self) -> Plan:
        """How its maps are divided, by heads."""
        if self.weigh is not None:
            return {}
        column = CutRows(self.num_heads, "size.num_heads")
        return {"q": column, "kv": replace(column, parts=2), "place": column, "out": CutColumns()}

    def bias_by_distance(self, distance: Tensor) -> Tensor:
        table = compute_sinusoids(distance, self.q.in_features).to(self.place_bias.dtype)
        r = self.place(table).unflatten(-1, (-1, self.head_width))  # [n, H, D]
        v = self.place_bias[:, 0] * self.head_width**-0.5
        return torch.einsum("hd,nhd->hn", v, r)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        op = env.ops["text"]
        if not isinstance(op, RelativeOp):
            allowed = "relative attention needs a model with distances"
            raise ConfigError("model.stack.cells", type(self).__name__, allowed, fix="model=xlnet")
        relations, x = op.relations, streams["text"]
        # [B, H, Tq, D]
        team, heads = self.team, (self.team.count(self.num_heads), self.head_width)
        q = self.q(x).unflatten(-1, heads).transpose(1, 2)
        # [B, H, K, D] each
        k, v = split_heads(self.kv(read_key_rows(streams, env)), *heads)
        bias = self._score_distances(q, relations, env)
        if (
            self.segments is not None
            and self.segment_bias is not None
            and relations.apart is not None
        ):
            change = team.cut(self.segments[1] - self.segments[0], 0)
            # [B, H, Tq, 1]
            change = ((q + team.cut(self.segment_bias, 0)) * change).sum(
                -1, keepdim=True
            ) * self.head_width**-0.5
            bias = torch.addcmul(bias, relations.apart.to(bias.dtype), change.to(bias.dtype))
        q = q + team.cut(self.content_bias, 0).to(q.dtype)
        dropout, op = self.dropout if self.training else 0.0, team.bind(env, "text")
        with team.draws(dropout):
            y = op(q, k, v, env, dropout=dropout, bias=lambda *_: bias, weigh=self.weigh)
        return self.out(y.transpose(1, 2).flatten(2))

    def _score_distances(self, q: Tensor, relations: Relations, env: Env) -> Tensor:
        """[B, H, Tq, K] the scaled scores of the distances between queries and keys."""
        q = (q + self.team.cut(self.place_bias, 0).to(q.dtype)) * self.head_width**-0.5
        table = relations.table
        placed = self.place(table) if env.slot is None else env.slot.derive(table, self.place)
        # [1 | 2, n, H, D]
        r = placed.unflatten(-1, (-1, self.head_width))
        if relations.reversed is None:
            return relations.gather(torch.einsum("bhqd,nhd->bhqn", q, r[0]))
        return relations.gather(torch.einsum("bhqd,bnhd->bhqn", q, r[relations.reversed.long()]))


def _draw(*shape: int) -> nn.Parameter:
    """A parameter of normal numbers, which is not drawn where it has no memory."""
    return nn.Parameter(torch.empty(shape).normal_(std=0.02))
