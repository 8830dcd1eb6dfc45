"""Attention whose global tokens have their own projections (Beltagy et al., 2020: Longformer)."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import torch
from torch import Generator, Tensor, nn

from plmctl.core.errors import UsageError
from plmctl.core.parts import part_of
from plmctl.nn.cells.attention import Attention, AttentionSettings
from plmctl.nn.cells.base import RowSize, Work, split_heads
from plmctl.nn.divided import CutRows, Plan
from plmctl.nn.env import Env, Streams
from plmctl.nn.starting import Starting


class GlobalMaps(Starting):
    """The maps q and kv of global tokens, which start as copies of those of all tokens.

    The rows of `kv.weight [2 H D, W]` are all of k, then v, each ordered (head, D).
    """

    def __init__(self, qkv: nn.Linear) -> None:
        super().__init__()
        width, inner, bias = qkv.in_features, qkv.out_features // 3, qkv.bias is not None
        self.q, self.kv = nn.Linear(width, inner, bias), nn.Linear(width, 2 * inner, bias)
        self._first = (qkv,)  # in a tuple: it is no part of this module

    @torch.no_grad()
    def start(self, generator: Generator) -> None:
        (first,) = self._first
        inner = self.q.out_features
        for name, parameter in self.q.named_parameters():  # `first` may have LoRA's, too
            q, kv = first.get_parameter(name).split([inner, 2 * inner])
            parameter.copy_(q)
            self.kv.get_parameter(name).copy_(kv)


@part_of("cells")
class GlobalAttention(Attention):
    """`Attention`; for the global tokens of the pattern the result is `out(softmax(q' k'^T /
    sqrt(D)) v')` instead, with q', k', v' from the maps `global_maps`.

    [B, T, W] -> [B, T, W]. A global token sees what the pattern allows it, all real tokens of its
    document; other tokens see global ones by q, k and v. Time and memory grow with T G for G global
    tokens in a row. Where the pattern names none it is `Attention`.
    (arXiv:2004.05150, sec. 3.1, "linear projections for global attention";
    allenai/longformer, longformer.py.)
    """

    facts = replace(Attention.facts, reads=frozenset({"text"}), takes_prefix=False)

    def __init__(self, **settings: Unpack[AttentionSettings]) -> None:
        super().__init__(**settings)
        assert isinstance(self.qkv, nn.Linear)
        self.global_maps = GlobalMaps(self.qkv)

    def work(self, row: RowSize) -> Work:
        """The cost without q' and the scores of global tokens, which are few."""
        work, q = super().work(row), self.global_maps.q
        rows = (1 + row.queries) * row.tokens
        return Work(
            work.macs - rows * q.weight.numel(), work.scores, work.kept - rows * q.out_features
        )

    def soften(self, factor: float) -> None:
        super().soften(factor)
        self.global_maps.q.weight.data.mul_(factor)

    def plan_division(self) -> Plan:
        plan, heads = super().plan_division(), (self.num_heads, "size.num_heads")
        own = {"global_maps.q": CutRows(*heads), "global_maps.kv": CutRows(*heads, parts=2)}
        return {**plan, **own} if plan else {}

    def attend(self, streams: Streams, env: Env) -> Tensor:
        y, x = super().attend(streams, env), streams["text"]
        op = self.team.bind(env, "text")
        if op.global_rows is None:
            return y
        own = env.enter("global")
        if env.slot is not None and own.slot is not None:
            missing = env.slot.length - x.shape[1] - own.slot.length
            if missing:  # their k' and v' were not needed when they were read
                problem = f"a global token after {missing} tokens that were read before it"
                raise UsageError(f"{problem}: a text is read token by token after its global ones")
        chosen = op.global_rows.take(x[:, None])[:, 0]  # [B, G, W]
        heads = (self.team.count(self.num_heads), self.head_width)
        q = split_heads(self.global_maps.q(chosen), *heads)[0]
        k, v = split_heads(self.global_maps.kv(x), *heads)
        q, k = self._normalize(q, k)
        dropout = self.dropout if self.training else 0.0
        with self.team.draws(dropout):
            return op.replace_global(y, self.score(q), k, v, own, dropout=dropout, weigh=self.weigh)
