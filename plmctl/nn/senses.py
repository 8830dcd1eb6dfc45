"""A table of tokens to which the senses of words are added (Levine et al., 2020, SenseBERT)."""

from __future__ import annotations

from typing import cast

import torch
from torch import Generator, Tensor, nn

from plmctl.core.errors import AbsentData
from plmctl.core.parts import part_of
from plmctl.knowledge.senses import Senses, unpack
from plmctl.nn.starting import FitsIn, Starting
from plmctl.nn.tables import Lookup, TokenTable
from plmctl.text.vocab import Vocab


class AllowedSenses(Starting):
    """ids [...] -> [..., K] bool: the senses that each token may have, M of the paper.

    They are looked up when a model starts from nothing, and then saved with its weights.
    """

    def __init__(self, *, vocab_size: int, senses: Senses, vocab: Vocab | None) -> None:
        super().__init__()
        self.senses, self.vocab = senses, vocab
        self.absent: AbsentData | None = None
        self.register_buffer("table", torch.zeros(vocab_size, len(senses.names), dtype=torch.bool))

    def start(self, generator: Generator) -> None:
        table = cast(Tensor, self.table)
        if self.vocab is not None:
            try:
                bits = self.senses.of_vocab(self.vocab)
            except AbsentData as error:  # a checkpoint may still bring the table
                self.absent = error
                return
            table[: len(bits)] = torch.from_numpy(unpack(bits, table.shape[1])).to(table.device)

    def forward(self, ids: Tensor) -> Tensor:
        table = cast(Tensor, self.table)
        if self.absent is not None:
            if not table.any():
                raise self.absent
            self.absent = None
        return table[ids]


@part_of("table")
class SenseTable(TokenTable, Lookup, FitsIn):
    """`W[w] + sum of S[s] over the senses s that w may have`, ids [...] -> [..., W].

    (Levine et al., 2020, arXiv:1908.05646, sec. 3.3, eq. 8: `(W + S M) x`; a sum, not a mean; a
    token without senses, such as the mask, has W alone.) W is tied to the head of masked tokens, S
    to that of senses (`heads.sense`). In a trained model a learned S begins at 0, so that the model
    computes what it did.

    Args:
        senses: The senses that words may have; the rows of S.
        shown: whether they are added to the input; else S belongs to the head alone.
        learned: false: S stays as it was drawn, so that a sense is a random vector (a control).
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        width: int,
        senses: Senses,
        vocab: Vocab | None = None,
        shown: bool = True,
        learned: bool = True,
    ) -> None:
        super().__init__(vocab_size=vocab_size, width=width)
        self.shown = shown
        self.allowed = AllowedSenses(vocab_size=vocab_size, senses=senses, vocab=vocab)
        self.sense = nn.Embedding(len(senses.names), width)
        self.sense.weight.requires_grad_(learned)

    def fit_in(self) -> None:
        if self.sense.weight.requires_grad:
            nn.init.zeros_(self.sense.weight)

    def forward(self, input: Tensor) -> Tensor:
        words = super().forward(input)
        if not self.shown:
            return words
        senses = self.sense.weight
        return words + self.allowed(input).to(senses.dtype) @ senses
