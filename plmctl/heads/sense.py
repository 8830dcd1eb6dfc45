"""SenseBERT's head (Levine et al., 2020): states to logits over the supersenses of a word."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.base import widen
from plmctl.nn.cells.feedforward import find_activation
from plmctl.nn.senses import SenseTable


class SenseLosses(NamedTuple):
    """Sums over words, each []."""

    allowed: Tensor
    spread: Tensor
    right: Tensor  # words of which the likeliest sense is allowed


@part_of("heads")
class SenseHead(nn.Module):
    """`logits = norm(activation(dense(h))) S^T + bias`, [P, W] -> [P, K]; without `transform`, `h
    S^T + bias`. S is that of the input (`SenseTable`).

    (Levine et al., 2020, arXiv:1908.05646, sec. 3.2, which writes `S^T h`; as for masked tokens,
    BERT's transform and a bias stand before and behind it.)
    """

    def __init__(
        self,
        *,
        width: int,
        token_embedding: nn.Module | None,
        transform: bool = True,
        bias: bool = True,
        activation: str = "gelu",
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        if not isinstance(token_embedding, SenseTable):
            raise ConfigError(
                "model.embedding.table",
                None,
                "a table of tokens with senses, which the head of senses shares",
                fix="model.embedding.table={_target_:plmctl.nn.senses.SenseTable,"
                "senses:{_target_:plmctl.knowledge.senses.WordNetSenses}}, as recipe sensebert",
            )
        self._table = (token_embedding,)  # in a tuple: not a submodule, so not stored twice
        count, inner = token_embedding.sense.weight.shape
        if inner != width and not transform:
            raise ConfigError("transform", transform, f"true: states of {width} on S of {inner}")
        self.count = count
        self.dense = nn.Linear(width, inner) if transform else None
        self.activation = find_activation(activation)
        self.norm = nn.LayerNorm(inner, eps=eps) if transform else None
        self.bias = nn.Parameter(torch.zeros(count)) if bias else None

    def forward(self, features: Tensor) -> Tensor:
        if self.dense is not None and self.norm is not None:
            features = self.norm(self.activation(self.dense(features)))
        return F.linear(features, cast(Tensor, self._table[0].sense.weight), self.bias)

    def loss(self, features: Tensor, bits: Tensor) -> SenseLosses:
        """The two losses of words, in fp32 or wider.

        `allowed = - log sum_{s in A} p(s)`, eq. 4; `spread = - (1 / |A|) sum_{s in A} log p(s)`,
        eq. 6; p = softmax(logits).

        Args:
            features: [P, W].
            bits: [P] int64, the senses A that each word may have; none is empty.
        """
        logits = widen(self(features))
        allowed = (bits[:, None] >> torch.arange(self.count, device=bits.device)) & 1 > 0
        inside = logits.masked_fill(~allowed, -torch.inf).logsumexp(-1)
        whole = logits.logsumexp(-1)
        mean = logits.masked_fill(~allowed, 0).sum(-1) / allowed.sum(-1)
        right = allowed.gather(1, logits.argmax(-1, keepdim=True)).sum()
        return SenseLosses((whole - inside).sum(), (whole - mean).sum(), right)
