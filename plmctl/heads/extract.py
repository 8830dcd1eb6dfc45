"""A score for each sentence of a document, after the sentences have seen each other (BERTSUM)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.heads.base import About, Head
from plmctl.nn.dropout import Dropout
from plmctl.nn.positions import Sinusoidal


class SentenceLayer(nn.Module):
    """`a = norm(h + attention(h)); norm(a + W2 gelu(W1 a))`, [B, S, W] -> [B, S, W] (Liu and
    Lapata, 2019, arXiv:1908.08345, eq. 5 and 6).
    """

    def __init__(self, *, width: int, num_heads: int, inner_width: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.inner = nn.Linear(width, inner_width)
        self.outer = nn.Linear(inner_width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.dropout = Dropout(rate=dropout)

    def forward(self, vectors: Tensor, real: Tensor) -> Tensor:
        """vectors [B, S, W], real [B, S] bool."""
        qkv = self.qkv(vectors).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, H, S, D] each
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None])
        seen = self.projection(seen.transpose(1, 2).flatten(2))
        vectors = self.norms[0](vectors + self.dropout(seen))
        inner = self.dropout(F.gelu(self.inner(vectors), approximate="tanh"))
        after: Tensor = self.norms[1](vectors + self.dropout(self.outer(inner)))
        return after


@part_of("heads")
class SummaryScores(Head):
    """`linear(h^L)` over the vectors of the sentences of a document, with h^0 = vectors +
    sinusoidal positions. [B, S, W] -> [B, S], the log-odds of being in the summary (Liu and Lapata,
    2019, arXiv:1908.08345, sec. 3.2).

    `between`: how many layers L; 0: linear alone. Differs: as many heads and as wide inside as the
    model (`size`); published: 8 and 2,048 for BERT-base.
    """

    about: About = "tokens"
    of_task = True

    def __init__(
        self, *, width: int, num_heads: int, inner_width: int, between: int, dropout: DropoutRate
    ) -> None:
        super().__init__()
        if between < 0:
            raise ConfigError("between", between, "0 or more layers", fix="between=2")
        if width % num_heads:
            raise ConfigError("num_heads", num_heads, f"a divisor of the width, {width}")
        self.positions = Sinusoidal(width=width, layout="interleaved")
        self.dropout = Dropout(rate=dropout)
        self.layers = nn.ModuleList(
            SentenceLayer(
                width=width, num_heads=num_heads, inner_width=inner_width, dropout=dropout
            )
            for _ in range(between)
        )
        self.linear = nn.Linear(width, 1)

    def forward(self, features: Tensor, real: Tensor) -> Tensor:
        """features [B, S, W], real [B, S] bool: whether a sentence is real -> [B, S]."""
        x = features
        if len(self.layers):
            numbers = torch.arange(x.shape[1], device=x.device)
            x = self.dropout(self.positions.embed(x, numbers))
        for layer in self.layers:
            x = layer(x, real)
        return self.linear(x).squeeze(-1)  # type: ignore[no-any-return]
