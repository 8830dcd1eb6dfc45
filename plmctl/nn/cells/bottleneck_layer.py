"""A whole layer in a narrow stream of its own (Sun et al., 2020, arXiv:2004.02984, MobileBERT)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.base import MAPS, split_heads
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.divided import Plan
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams


class NormedMap(nn.Module):
    """`norm(linear(x))`, [..., W] -> [..., b]."""

    def __init__(self, width: int, outputs: int, norm: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, outputs), norm(width=outputs)

    def forward(self, x: Tensor) -> Tensor:
        narrow: Tensor = self.norm(self.linear(x))
        return narrow


@part_of("cells")
class BottleneckLayer(Attention):
    """A layer of MobileBERT, with norms and residual sums inside (sec. 3.1 to 3.3, table 1):

        r = norm(enter x)                                  W -> b columns
        a_0 = norm(out(attention(q, k, v)) + r)
        a_j = norm(feed_j(a_(j-1)) + a_(j-1))              j = 1 .. n
        y = norm(leave a_n + x)                            b -> W columns

    [B, T, W] -> [B, T, W]. Queries and keys are made of norm(share x), values of x.

    Args:
        width: W.
        num_heads: Heads of b / heads columns.
        bottleneck: b; more than W is the inverted bottleneck of its teacher.
        inner_width: Inner columns of a feed-forward cell.
        feeds: The number n of feed-forward cells.
        activation: The activation of the feed-forward cells.
        norm: Published: `no_norm`; its teacher: `layer_norm`.
        keys: The input of queries and keys. "shared": a narrow stream of their own; "stream": x, as
            in the teacher.
        dropout: The rate on the probabilities of attention.
        last_dropout: The rate on the result of `leave`.
    """

    projected_by = "leave"

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        bottleneck: Count,
        inner_width: int,
        feeds: Count = 4,
        activation: str = "relu",
        norm: Callable[..., nn.Module],
        keys: Literal["shared", "stream"] = "shared",
        dropout: DropoutRate = 0.0,
        last_dropout: DropoutRate = 0.0,
    ) -> None:
        super().__init__(width=bottleneck, num_heads=num_heads, dropout=dropout)
        gives = {**MAPS, "qkv": ("query", "key"), "value": ("value",)}
        self.facts = replace(
            self.facts,
            reads=frozenset({"text"}),
            outputs=width,
            complete=True,
            dropped=False,
            gives=gives,
        )
        self.enter = NormedMap(width, bottleneck, norm)
        self.share = NormedMap(width, bottleneck, norm) if keys == "shared" else None
        self.qkv = nn.Linear(width if self.share is None else bottleneck, 2 * bottleneck)
        self.value = nn.Linear(width, bottleneck)
        self.feeds = nn.ModuleList(
            FeedForward(width=bottleneck, inner_width=inner_width, activation=activation)
            for _ in range(feeds)
        )
        self.norms = nn.ModuleList(norm(width=bottleneck) for _ in range(feeds + 1))
        self.leave, self.last_norm = nn.Linear(bottleneck, width), norm(width=width)
        self.last_dropout = Dropout(rate=last_dropout)

    def plan_division(self) -> Plan:
        return {}

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x = streams["text"]
        keys = self.qkv(x if self.share is None else self.share(x))
        q, k = split_heads(keys, self.num_heads, self.head_width)
        (v,) = split_heads(self.value(x), self.num_heads, self.head_width)
        seen = self.attend_to(q, k, v, env).transpose(1, 2).flatten(2)
        narrow: Tensor = self.norms[0](self.out(seen) + self.enter(x))
        for feed, norm in zip(self.feeds, self.norms[1:], strict=True):
            narrow = norm(feed.compute(narrow) + narrow)  # type: ignore[operator]
        whole: Tensor = self.last_norm(self.last_dropout.add(x, self.leave(narrow)))
        return whole
