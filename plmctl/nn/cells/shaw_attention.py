"""Attention with a vector for each distance, learned (Shaw et al., 2018) or of waves (NEZHA)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work, check_heads, split_heads
from plmctl.nn.env import Env, Streams
from plmctl.nn.positions import Sinusoidal
from plmctl.nn.relations import RelativeOp, read_key_rows
from plmctl.nn.weights import WeightsFactory, make_weights


@part_of("cells")
class ShawAttention(Cell):
    """`out(sum_j p_ij (v_j + b_c(j-i)))`, p_i = softmax_j(q_i (k_j + a_c(j-i)) / sqrt(D)), c(x) = x
    cut to -`clip` .. `clip`.

    [B, T, W] -> [B, T, W]. The vectors a and b of D columns are the same in all heads, row c +
    `clip` of their tables; without `values` there is no b. Keys and values are made of the stream
    `memory` [B, M, W], too, where a model has one. All scores are computed, whatever the kernel.
    The rows of `kv.weight [2 H D, W]` are all of k, then v, each ordered (head, D). `weights`
    replaces softmax (nn/entmax.py). (arXiv:1803.02155, sec. 3.2 and 3.3.) `learned=False`: a = b =
    [sin(x w_0), cos(x w_0), sin(x w_1), ...], w_i = 10000^(-2i / D), fixed (Wei et al., 2019,
    arXiv:1909.00204, NEZHA: functional relative positional encoding). Differs from its formula, as
    its released code does: x is the row of the table, c + `clip`.
    """

    projected_by = "out"
    facts = CellFacts(computes="attention", reads=frozenset({"text", "memory"}))

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        dropout: DropoutRate,
        clip: Count = 16,
        values: bool = True,
        head_width: int | None = None,
        bias: bool = True,
        weights: WeightsFactory | None = None,
        learned: bool = True,
    ) -> None:
        super().__init__()
        if head_width is None:
            check_heads(num_heads, width)
        self.num_heads, self.head_width = num_heads, head_width or width // num_heads
        self.dropout, self.clip, self.values = dropout, clip, values
        inner = num_heads * self.head_width
        self.q, self.kv = nn.Linear(width, inner, bias), nn.Linear(width, 2 * inner, bias)
        self.out = nn.Linear(inner, width, bias)
        sizes = 2 * clip + 1, self.head_width
        self.key_vectors = nn.Embedding(*sizes) if learned else None  # a
        self.weigh = make_weights(weights, num_heads)
        self.value_vectors = nn.Embedding(*sizes) if learned and values else None  # b
        self.waves = None
        if not learned:
            self.waves = Sinusoidal(width=self.head_width, layout="interleaved")

    def work(self, row: RowSize) -> Work:
        """The cost with M + T keys for each query; the vectors of distances count as a product with
        each query and one with its probabilities.
        """
        queries, keys = (1 + row.queries) * row.tokens, row.tokens + row.memory
        inner, tables = self.num_heads * self.head_width, 2 if self.values else 1
        macs = queries * (self.q.weight.numel() + self.out.weight.numel())
        macs += keys * self.kv.weight.numel() + queries * tables * (2 * self.clip + 1) * inner
        kept = queries * (inner + self.out.out_features) + keys * 2 * inner
        return Work(macs, 2 * queries * keys * inner, kept + 2 * queries * keys * self.num_heads)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        op = env.ops["text"]
        heads = (self.num_heads, self.head_width)
        q = split_heads(self.q(streams["text"]), *heads)[0]  # [B, H, Tq, D]
        k, v = split_heads(self.kv(read_key_rows(streams, env)), *heads)  # [B, H, Tk, D]
        q, k = op.position.rotate(q, k, op.positions, op.positions)
        k, v = env.extend(k, v)
        # [B | 1, 1, Tq, Tk] the row of the tables for each query and key
        row = self.clip - self._count_distances(env).clamp(-self.clip, self.clip)[:, None]
        row = row.expand(q.shape[0], self.num_heads, -1, -1)
        q = q * self.head_width**-0.5
        a, b = self._find_vectors(q)
        scores = q @ k.transpose(-1, -2) + (q @ a.T).gather(-1, row)
        added = op.position.bias(q, op.positions, self._key_positions(env))
        scores = scores if added is None else scores + added
        hidden = op.plan.hidden(scores)
        if hidden is not None:  # finite in softmax: a row of -inf would be NaN
            low = torch.finfo(scores.dtype).min / 2 if self.weigh is None else -torch.inf
            scores = scores.masked_fill(hidden, low)
        p = scores.softmax(-1) if self.weigh is None else self.weigh(scores)
        p = p if hidden is None else p.masked_fill(hidden, 0)
        p = nn.functional.dropout(p, self.dropout, self.training)
        y = p.to(v.dtype) @ v
        if b is not None:
            shares = p.new_zeros(*p.shape[:3], 2 * self.clip + 1).scatter_add(-1, row, p)
            y = y + shares.to(v.dtype) @ b.to(v.dtype)
        return self.out(y.transpose(1, 2).flatten(2))

    def _find_vectors(self, q: Tensor) -> tuple[Tensor, Tensor | None]:
        """[2 clip + 1, D] each: what is added to keys, and to values."""
        if self.waves is not None:
            rows = torch.arange(2 * self.clip + 1, device=q.device)
            fixed = self.waves.waves(rows).to(q.dtype)
            return fixed, fixed if self.values else None
        assert self.key_vectors is not None
        added = None if self.value_vectors is None else self.value_vectors.weight
        return self.key_vectors.weight, added

    def _count_distances(self, env: Env) -> Tensor:
        """[B | 1, Tq, Tk] position of the query - position of the key."""
        op = env.ops["text"]
        if isinstance(op, RelativeOp):
            return op.relations.distances()
        return op.positions[:, :, None] - self._key_positions(env)[:, None]

    def _key_positions(self, env: Env) -> Tensor:
        """[B | 1, Tk] of a model without memory."""
        op = env.ops["text"]
        return op.positions if op.all_positions is None else op.all_positions
