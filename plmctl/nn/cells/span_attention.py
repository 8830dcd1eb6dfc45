"""Attention whose heads learn how far they look back (Sukhbaatar et al., 2019,
arXiv:1905.07799).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from plmctl.attention.kernels.dense import Mask, attend
from plmctl.core.errors import ConfigError
from plmctl.core.graphs import outside_graphs
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count, DropoutRate, Number, Rate
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work, check_heads
from plmctl.nn.env import Env, Streams
from plmctl.nn.spans import AdaptiveSpan, DynamicSpan, log_mask

_BLOCK = 64  # queries, at least, that are computed together


@part_of("cells")
class SpanAttention(Cell):
    """`out(a v)`, a_x = m_z(x) exp(s_x) / sum_y m_z(y) exp(s_y) over the `span` tokens before a
    token, which does not see itself; s_x = q k_x / sqrt(D) and what positions add.

    [B, T, W] -> [B, T, W]. `m_z` is the soft mask of each head (nn/spans.py): ones up to the
    learned z, then a `ramp` down to 0. With `dynamic`, z depends on the token that looks back. With
    `adaptive=False`, all heads see all of `span`. Keys and values are also made of the stream
    `memory` [B, M, W], but only as far back as the longest span in the batch. Time and memory of a
    layer grow with it, T (z + R) instead of T (M + T). Blocks of queries meet the keys in their
    reach. The rows of `kv.weight [2 H D, W]` are all of k, then v, each ordered (head, D). (Sec.
    2.2 and 2.3; facebookresearch/adaptive-span, models.py.) Differs: memory that is not filled is
    never seen (released: zeros are). Dynamic spans are not in the released code; all memory in
    `span` is kept for them, since a later token may see it.

    Args:
        width: W.
        num_heads: H.
        dropout: The rate of dropout on the normalised weights.
        span: S, the most tokens that a head can look back.
        ramp: R, tokens.
        start: the share of S that every head begins with.
        penalty: times the mean z of the heads, in the loss.
        adaptive: whether z is learned.
        dynamic: whether each token has its own z, a learned function of x.
        head_width: D; null: W / H.
        bias: Whether the linear maps have a bias.
    """

    projected_by = "out"
    facts = CellFacts(computes="attention", reads=frozenset({"text", "memory"}), ahead=False)

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        dropout: DropoutRate,
        span: Count,
        ramp: Amount = 32,
        start: Rate = 0.0,
        penalty: Number = 2e-6,
        adaptive: bool = True,
        dynamic: bool = False,
        head_width: Count | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        if dynamic and not adaptive:
            raise ConfigError(
                "dynamic", True, "only with adaptive=true: others are fixed", fix="adaptive=true"
            )
        if head_width is None:
            check_heads(num_heads, width)
        self.num_heads, self.head_width = num_heads, head_width or width // num_heads
        self.facts, self.dropout = replace(self.facts, longest=span), dropout
        inner = num_heads * self.head_width
        self.q = nn.Linear(width, inner, bias=bias)
        self.kv = nn.Linear(width, 2 * inner, bias=bias)
        self.out = nn.Linear(inner, width, bias=bias)
        sizes: dict[str, Any] = {"num_heads": num_heads, "longest": span, "ramp": ramp}
        self.soft = (
            DynamicSpan(width=width, **sizes, start=start, strength=penalty)
            if dynamic
            else AdaptiveSpan(**sizes, start=start, strength=penalty, learned=adaptive)
        )

    def looks_back(self) -> int:
        return self.soft.reach()

    def work(self, row: RowSize) -> Work:
        """The cost with the spans as they are; dynamic ones as without their input."""
        own, inner, reach = super().work(row), self.out.in_features, self.soft.usual_reach()
        pairs = row.tokens * min(reach + _size_block(row.tokens, reach), row.tokens + row.memory)
        remembered = min(row.memory, reach)
        macs = own.macs + remembered * self.kv.weight.numel()
        kept = own.kept + 2 * remembered * inner + 3 * pairs * self.num_heads
        return Work(macs, 3 * pairs * inner, kept)

    @outside_graphs  # sizes are values
    def forward(self, streams: Streams, env: Env) -> Tensor:
        x, memory = streams["text"], streams.get("memory")
        spans = self.soft(x)  # [B | 1, H, T | 1]
        reach = self.soft.reach(spans)
        self._note(spans, env)
        seen = x if memory is None else torch.cat([memory[:, -reach:], x], 1)
        q = self.q(x).unflatten(-1, (self.num_heads, self.head_width)).transpose(1, 2)
        # [B, H, K, D] each
        k, v = self.kv(seen).unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        first = 0 if env.slot is None else env.slot.length
        places = torch.arange(first, first + seen.shape[1], device=x.device)[None]
        q, k = env.ops["text"].position.rotate(q, k, places[:, -x.shape[1] :], places)
        k, v = env.extend(k, v)
        y = self._see(q, k, v, spans, env)
        return self.out(y.transpose(1, 2).flatten(2))

    def _note(self, spans: Tensor, env: Env) -> None:
        """State the spans of this pass, where they are of tokens."""
        if isinstance(self.soft, DynamicSpan):
            seq = env.seq
            real = None if seq is None or seq.full else seq.real
            env.note(self.soft, self.soft.note(spans, real))

    def _see(self, q: Tensor, k: Tensor, v: Tensor, spans: Tensor, env: Env) -> Tensor:
        """[B, H, T, D] for the last T of K tokens, one block of queries after the other."""
        length = q.shape[2]
        front, block, blocks = k.shape[2] - length, _size_block(length, self.soft.reach(spans)), []
        dropout = self.dropout if self.training else 0.0
        places = torch.arange(k.shape[2], device=q.device)
        documents = _number_keys(front, q, env)
        for begin in range(0, length, block):
            end = min(begin + block, length)
            own_spans = spans if spans.shape[2] == 1 else spans[:, :, begin:end]
            reach = self.soft.reach(own_spans)
            # the last query sees the token before it
            keys = slice(max(0, front + begin - reach), max(1, front + end - 1))
            own, others = places[front + begin : front + end], places[keys]
            distance = own[:, None] - others
            allowed = ((distance > 0) & (distance <= reach))[None]
            if documents is not None:
                allowed = allowed & (documents[:, own, None] == documents[:, None, keys])
            queries = q[:, :, begin:end]
            bias = env.ops["text"].position.bias(queries, own[None], others[None])
            soft = log_mask(own_spans, distance, self.soft.ramp).to(q.dtype)
            bias = soft if bias is None else bias + soft
            mask = Mask(allowed[:, None])
            blocks.append(
                attend(queries, k[:, :, keys], v[:, :, keys], mask=mask, bias=bias, dropout=dropout)
            )
        return torch.cat(blocks, 2) if len(blocks) > 1 else blocks[0]


def _size_block(tokens: int, reach: int) -> int:
    """Queries that are computed together: with more, more keys are out of their reach; with fewer,
    products are small.
    """
    return min(tokens, max(_BLOCK, reach // 2))


def _number_keys(front: int, q: Tensor, env: Env) -> Tensor | None:
    """[B, K] the document of each key, `front` of them before the text, -1 where nobody sees it;
    None: all are of one document.
    """
    documents = env.all_documents
    if env.filled is None or not front:
        return documents
    if documents is None:
        documents = torch.zeros(q.shape[0], q.shape[2], dtype=torch.long, device=q.device)
    filled = torch.arange(front, device=q.device) >= front - env.filled[:, None]
    remembered = torch.where(filled, documents[:, :1].clamp(min=0), -1)
    return torch.cat([remembered, documents], 1)
