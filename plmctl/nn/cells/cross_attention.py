"""Attention from one sequence to another (Vaswani et al., 2017, arXiv:1706.03762, sec. 3.2.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work, check_heads
from plmctl.nn.divided import CutColumns, CutRows, Plan
from plmctl.nn.env import Env, Streams
from plmctl.nn.scores import make_score
from plmctl.nn.weights import WeightsFactory, make_weights


@part_of("cells")
class CrossAttention(Cell):
    """`out(softmax(q k^T / sqrt(D)) v)` with q from the stream and k, v from the stream
    `source`.

    [B, T, W] -> [B, T, W]. The rows of `kv.weight [2 H D, W]` are all of k, then v, each ordered
    (head, D). Keys have no positions: the states already contain them. `scores`: scaled, dot (T5)
    or general, see nn/scores.py. `weights` replaces softmax (nn/entmax.py). `outputs`: columns of
    the result; null: W.
    """

    projected_by = "out"
    facts = CellFacts(computes="attention", reads=frozenset({"text", "source"}))

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        dropout: DropoutRate,
        head_width: int | None = None,
        bias: bool = True,
        scores: str = "scaled",
        source_width: int | None = None,
        weights: WeightsFactory | None = None,
        outputs: Count | None = None,
    ) -> None:
        super().__init__()
        self.facts = replace(self.facts, outputs=outputs)
        if head_width is None:
            check_heads(num_heads, width)
        self.num_heads = num_heads
        self.head_width = head_width or width // num_heads
        self.dropout = dropout
        self.q = nn.Linear(width, num_heads * self.head_width, bias=bias)
        self.kv = nn.Linear(source_width or width, 2 * num_heads * self.head_width, bias=bias)
        self.score = make_score(scores, num_heads=num_heads, head_width=self.head_width)
        self.out = nn.Linear(num_heads * self.head_width, outputs or width, bias=bias)
        self.weigh = make_weights(weights, num_heads)

    def work(self, row: RowSize) -> Work:
        own, scores = super().work(row), 2 * row.tokens * row.source * self.num_heads
        more = row.source - row.tokens  # keys and values are made of the source
        macs = own.macs + more * self.kv.weight.numel()
        kept = own.kept + more * self.kv.out_features
        return Work(macs, scores * self.head_width, kept + scores)

    def plan_division(self) -> Plan:
        """How its maps are divided, by heads."""
        if self.weigh is not None or next(self.score.parameters(), None) is not None:
            return {}
        heads = self.num_heads, "size.num_heads"
        return {"q": CutRows(*heads), "kv": CutRows(*heads, parts=2), "out": CutColumns()}

    def soften(self, factor: float) -> None:
        """Multiply the scores that the weights give by `factor`."""
        self.q.weight.data.mul_(factor)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        states = streams.get("source")
        if states is None:
            raise ConfigError(
                "model.stack.layout", "c", "cross-attention has no source in a model with one stack"
            )
        # [B, H, T, D]
        heads = self.team.count(self.num_heads)
        q = self.q(streams["text"]).unflatten(-1, (heads, self.head_width))
        q = self.score(q.transpose(1, 2))
        dropout = self.dropout if self.training else 0.0
        how: Any = {"dropout": dropout, "weigh": self.weigh}
        op, around = self.team.bind(env, "source"), env.without_cache()
        if env.slot is None:
            k, v = self._keys(states)
            with self.team.draws(dropout):
                y = op(q, k, v, around, **how)
        else:
            k, v = env.slot.once(
                lambda: tuple(x.contiguous() for x in self._keys(states)), by_source=True
            )
            y = self._share(op, q, k, v, around, **how)
        return self.out(y.transpose(1, 2).flatten(2))

    def _share(self, op: BoundOp, q: Tensor, k: Tensor, v: Tensor, env: Env, **how: Any) -> Tensor:
        """[B, H, T, D] where neighbours among the B rows read one of fewer sources."""
        copies = len(q) // len(k)
        if copies == 1:
            return op(q, k, v, env, **how)
        if q.shape[2] > 1:
            k, v = (x.repeat_interleave(copies, 0) for x in (k, v))
            return op(q, k, v, env, **how)
        first = torch.arange(0, len(q), copies, device=q.device)
        plan = cast(Mask, op.plan).select(first)
        # the tokens of neighbours as those of one row
        q = q.reshape(len(k), copies, *q.shape[1::2]).transpose(1, 2)
        y = replace(op, plan=plan)(q, k, v, env, **how)
        return y.transpose(1, 2).flatten(0, 1)[:, :, None]

    def _keys(self, states: Tensor) -> tuple[Tensor, ...]:
        """[B, H, S, D] each."""
        return (
            self.kv(states)
            .unflatten(-1, (2, self.team.count(self.num_heads), self.head_width))
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
