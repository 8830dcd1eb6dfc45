"""Attention and span-based dynamic convolution side by side (Jiang et al., 2020,
arXiv:2008.02496, ConvBERT).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.base import RowSize, Work, check_heads
from plmctl.nn.cells.convolution import SeparableConvolution
from plmctl.nn.divided import Plan
from plmctl.nn.env import Env, Streams
from plmctl.nn.window import TokenWindow


@part_of("cells")
class MixedAttention(Attention):
    """`out([a; c])`: a is attention, c_t = sum_j softmax_j(taps(s_t * q_t)) v'_(t + j - reach) a
    convolution whose kernels depend on the span around the token.

    [B, T, W] -> [B, T, W]. q is the query of attention, s = `span` x a separable convolution, v' =
    `values` x. Both halves have `num_heads` heads of W / (2 num_heads) columns; a head of c has one
    kernel of `kernel` taps. (Jiang et al., 2020, sec. 4.1, eq. 5 to 8, and released code.)
    Differs: padding and other documents are zeros in a window (released code: padding counts).
    """

    def __init__(
        self, *, width: int, num_heads: int, dropout: DropoutRate, kernel: Count = 9
    ) -> None:
        check_heads(2 * num_heads, width)
        inner = width // 2
        super().__init__(
            width=width, num_heads=num_heads, dropout=dropout, head_width=inner // num_heads
        )
        self.window = TokenWindow(kernel, causal=False)
        self.facts = replace(
            self.facts,
            reads=frozenset({"text"}),
            ahead=True,
            offsets=self.window.offsets(),
            cached=False,
            takes_prefix=False,
        )
        self.span = SeparableConvolution(width=width, kernel=kernel, causal=False, outputs=inner)
        self.taps = nn.Linear(inner, num_heads * kernel)
        self.values = nn.Linear(width, inner)
        self.out = nn.Linear(width, width)

    def plan_division(self) -> Plan:
        return {}

    def work(self, row: RowSize) -> Work:
        own, rows = super().work(row), (1 + row.queries) * row.tokens
        sums = self.window.kernel * self.values.out_features * rows
        # one half of `out` alone reads attention
        return replace(own, macs=own.macs + sums, scores=own.scores)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x = streams["text"]
        q, k, v = self._project(x)
        seen = self.attend_to(q, k, v, env).transpose(1, 2).flatten(2)
        span = self.span(streams, env) * q.transpose(1, 2).flatten(2)
        kernels = self.taps(span).unflatten(-1, (self.num_heads, -1)).softmax(-1)
        around, documents = self.window.surround(self.values(x), env.documents, env.slot)
        around = around.unflatten(-1, (self.num_heads, -1))
        near = self.window.sum(around, documents, kernels.to(around.dtype)).flatten(2)
        return self.out(torch.cat([seen, near], -1))
