"""The softmax that both directions of a biLM share (Peters et al., 2018), over all words or over
a sample of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.lm import LMHead
from plmctl.nn.starting import Starting


@part_of("heads")
class SharedSoftmax(Starting):
    """`logits = h table^T + b`, states of one direction [..., W / 2] -> [..., V]; first weights
    N(0, 2 / W), b = 0.

    `words`: only that many, the first of the vocabulary. With `samples` S, training compares the
    right word with S others alone, drawn for the whole micro-batch without replacement. The draws
    follow `q(k) = log((k + 2) / (k + 1)) / log(V + 1)`, so the vocabulary has to be sorted by
    frequency. `log E[count]` is subtracted from every logit, and a drawn word that is the right one
    does not count (Jean et al., 2015, arXiv:1412.2007, sec. 3; tf.nn.sampled_softmax_loss).
    Evaluation compares all words.
    """

    ways: ClassVar[Sequence[str]] = ("both", "forward", "backward")  # ways to score a text

    def __init__(
        self,
        *,
        width: int,
        vocab_size: int,
        words: int | None = None,
        samples: int | None = None,
        chunk: int = 1 << 26,
    ) -> None:
        super().__init__()
        size = vocab_size if words is None else min(words, vocab_size)
        if words is not None and words < 1:
            raise ConfigError("words", words, "at least 1, or null for the whole vocabulary")
        if samples is not None and samples < 1:
            raise ConfigError("samples", samples, "at least 1, or null for all words")
        # with as many samples as words, all words are cheaper
        self.samples = samples if samples is not None and samples < size else None
        self.softmax = LMHead(
            width=width // 2,
            vocab_size=size,
            token_embedding=None,
            tied=False,
            transform=False,
            bias=True,
            chunk=chunk,
        )

    def start(self, generator: Generator) -> None:
        size = self.softmax.vocab_size
        nn.init.normal_(
            self.softmax.table[:size], std=self.softmax.table.shape[1] ** -0.5, generator=generator
        )
        nn.init.zeros_(self.softmax.bias)  # type: ignore[arg-type]

    def forward(self, features: Tensor) -> Tensor:
        return self.softmax(features)

    @property
    def words(self) -> int:
        """How many words it predicts, the first ones of the vocabulary."""
        return self.softmax.vocab_size

    def token_losses(self, features: Tensor, ids: Tensor) -> Tensor:
        """features [P, W / 2], ids [P] -> [P] the negative log-likelihoods among all words."""
        return self.softmax.token_losses(features, ids)

    def loss(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """features [P, W / 2], ids [P] -> (summed cross-entropy, right first guesses: None where
        only some were compared).
        """
        if self.samples is None or not self.training:
            return self.softmax.loss(features, ids)
        drawn, tries = draw_log_uniform(
            self.softmax.vocab_size, self.samples, device=features.device
        )
        return self.sampled_loss(features, ids, drawn, tries), None

    def sampled_loss(self, features: Tensor, ids: Tensor, drawn: Tensor, tries: int) -> Tensor:
        """The loss against the words `drawn` [S], which took `tries` draws to find."""
        words = ids.clamp(min=0)
        table, bias = self.softmax.table, self.softmax.bias
        assert bias is not None
        size = self.softmax.vocab_size
        right = (
            (features * F.embedding(words, table)).sum(-1).float()
            + bias[words]
            - count_expected(words, size, tries).log()
        )
        others = (
            F.linear(features, table[drawn], bias[drawn]).float()
            - count_expected(drawn, size, tries).log()
        )
        others = others.masked_fill(drawn == words[:, None], -torch.inf)
        losses = torch.cat([right[:, None], others], 1).logsumexp(-1) - right
        return torch.where(ids == IGNORE, 0.0, losses).sum()


def count_expected(ids: Tensor, size: int, tries: int) -> Tensor:
    """How often each word is among words drawn without replacement in `tries` draws: `1 - (1 -
    q)^tries`.
    """
    q = ((ids.double() + 2) / (ids.double() + 1)).log() / math.log(size + 1)
    return -torch.expm1(tries * torch.log1p(-q)).float()


def draw_log_uniform(size: int, count: int, *, device: torch.device) -> tuple[Tensor, int]:
    """(`count` different words below `size`, drawn log-uniformly; how many draws that took,
    repeated ones included).
    """
    drawn = torch.empty(0, dtype=torch.int64, device=device)
    while True:
        more = torch.rand(4 * count, device=device, dtype=torch.float64)
        drawn = torch.cat(
            [drawn, ((more * math.log(size + 1)).exp() - 1).long().clamp(max=size - 1)]
        )
        ordered, order = drawn.sort(stable=True)
        new = torch.cat([ordered.new_ones(1, dtype=torch.bool), ordered[1:] != ordered[:-1]])
        first = order[new].sort()[0]
        if len(first) >= count:
            return drawn[first[:count]], int(first[count - 1]) + 1
