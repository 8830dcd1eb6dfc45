"""Transformer-XL's attention by distances for rows without memory, with any pattern and kernel."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from plmctl.attention.op import BoundOp
from plmctl.core.parts import part_of
from plmctl.nn.cells.base import CellFacts, RowSize, Work, split_heads
from plmctl.nn.cells.relative_attention import RelativeAttention, RelativeSettings
from plmctl.nn.divided import Plan
from plmctl.nn.env import Env, Streams


@part_of("cells")
class DistanceAttention(RelativeAttention):
    """`out(softmax(A / sqrt(D)) v)`, A_ij = (q_i + u) k_j + (q_i + v) W_r R_{i-j}, the formula and
    the weights of `RelativeAttention`, computed as one product of longer vectors.

    [B, T, W] -> [B, T, W]. With g_i = W_r^T (q_i + v), whose halves belong to the sines and the
    cosines of R, and p the position times the frequencies,

        g_i R_{i-j} = (g_sin sin p_i + g_cos cos p_i) cos p_j
                    + (g_cos sin p_i - g_sin cos p_i) sin p_j

    for sin(a - b) = sin a cos b - cos a sin b, and cos(a - b) likewise. So a query of D + W columns
    meets a key of D + W columns. No table of distances is needed and nothing is gathered. Each
    kernel computes only the scores that the pattern allows, also of windows with gaps. (Dai et al.,
    2019, arXiv:1901.02860, sec. 3.3; for windows: Beltagy et al., 2020, arXiv:2004.05150, sec.
    4.2.) Differs: in bf16 the angles of far positions are rounded one by one, not their difference.
    """

    # distances are in queries and keys already
    facts = CellFacts(computes="attention", biased=False, turned=False)

    def __init__(self, **settings: Unpack[RelativeSettings]) -> None:
        super().__init__(**settings)

    def work(self, row: RowSize) -> Work:
        """The cost with scores of D + W columns and values of D."""
        keys = row.tokens if row.keys is None else row.keys
        maps = (self.q, self.kv, self.place, self.out)
        scores = row.tokens * keys * self.num_heads
        columns = 2 * self.head_width + self.place.in_features
        kept = self.num_heads * 2 * (self.head_width + self.place.in_features)
        kept += 2 * self.head_width * self.num_heads + self.out.out_features
        macs = row.tokens * sum(part.weight.numel() for part in maps)
        return Work(macs, scores * columns, row.tokens * kept + 2 * scores)

    def plan_division(self) -> Plan:
        return {}  # it reads the weights of `place`

    def forward(self, streams: Streams, env: Env) -> Tensor:
        op, heads = env.ops["text"], (self.num_heads, self.head_width)
        (q,) = split_heads(self.q(streams["text"]), *heads)  # [B, H, T, D], as k and v
        k, v = split_heads(self.kv(streams["text"]), *heads)
        sine, cosine = self._turn(op, q)  # [B | 1, 1, T, W / 2] each
        place = self.place.weight.unflatten(0, heads).to(q.dtype)  # [H, D, W]
        asked = (q + self.place_bias.to(q.dtype)) @ place  # [B, H, T, W]
        of_sine, of_cosine = asked.chunk(2, -1)
        q = torch.cat(
            [
                q + self.content_bias.to(q.dtype),
                of_sine * sine + of_cosine * cosine,
                of_cosine * sine - of_sine * cosine,
            ],
            -1,
        )
        seen = torch.cat([cosine, sine], -1).expand(k.shape[0], self.num_heads, -1, -1)
        k = torch.cat([k, seen], -1)
        # kernels divide by the root of all columns
        q = q * (q.shape[-1] / self.head_width) ** 0.5
        dropout = self.dropout if self.training else 0.0
        y = op(q, k, v, env, dropout=dropout, weigh=self.weigh)
        return self.out(y.transpose(1, 2).flatten(2))

    def _turn(self, op: BoundOp, like: Tensor) -> tuple[Tensor, Tensor]:
        """Sines and cosines of the positions of these tokens, from fp64."""
        half = self.place.in_features // 2
        steps = torch.arange(half, device=like.device, dtype=torch.float64) / half
        angles = op.positions[:, None, :, None].double() * 10000.0**-steps
        return angles.sin().to(like.dtype), angles.cos().to(like.dtype)
