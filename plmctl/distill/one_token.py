"""One-token approximation (Schick and Schütze, 2020, AAAI): one vector that replaces all the pieces
of a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count
from plmctl.distill.mimicked import split_context
from plmctl.distill.word_vectors import WordsToAdd, WordVectors, table_of
from plmctl.knowledge.contexts import Context
from plmctl.models.base import Model
from plmctl.models.encoder import Encoder
from plmctl.objectives.mimic import embed_with
from plmctl.text.tokenizer import Tokenizer


@part_of("word_vectors")
@dataclass(frozen=True, kw_only=True)
class OneToken(WordVectors):
    """`argmin_v sum_c mean_t |h'_t(v) - h_t|^2`: h_t are the last states of a context c whose word
    is in its pieces. The states with v instead of the pieces are `h'_t`. The state of v is compared
    with the mean of the states of the pieces.

    Adam starts from the mean of the vectors of the pieces. It uses the first `contexts` contexts of
    a word; without contexts it uses the word alone. A word of one token keeps its vector. (Schick
    and Schütze, 2020, arXiv:1904.06707, sec. 3; the states that are compared and the contexts are
    ours: the paper could not be compared.)

    Args:
        contexts: The most contexts of a word.
        steps: The steps of Adam.
        lr: its rate, as a share of the spread of the table of tokens.
        max_length: The longest row.
    """

    contexts: Count
    steps: Count
    lr: Amount
    max_length: int

    def make(self, model: Model, tokenizer: Tokenizer, wanted: WordsToAdd) -> Tensor:
        if not isinstance(model.backbone, Encoder):
            kind = type(model.backbone).__name__
            raise ConfigError("word_vectors", kind, "an Encoder: BERT, RoBERTa")
        table = table_of(model, tokenizer)
        frozen = [(p, p.requires_grad) for p in model.parameters()]
        for parameter, _ in frozen:
            parameter.requires_grad_(False)
        try:
            return torch.stack(
                [self._fit(model, tokenizer, table, w, wanted) for w in wanted.words]
            )
        finally:
            for parameter, before in frozen:
                parameter.requires_grad_(before)

    def _fit(
        self, model: Model, tokenizer: Tokenizer, table: Tensor, word: str, wanted: WordsToAdd
    ) -> Tensor:
        pieces = tokenizer.encode(word)
        first = table[pieces].mean(0)
        if len(pieces) == 1:
            return first
        contexts = list(wanted.contexts.get(word, ()))[: self.contexts]
        contexts = contexts or [Context(word, 0, len(word))]
        sides = [split_context(tokenizer, context) for context in contexts]
        room = self.max_length - len(pieces) - 2
        vocab, half = tokenizer.vocab, max(1, room // 2)
        sides = [(left[-half:], right[:half]) for left, right in sides]
        around = ([vocab.id("cls")], [vocab.id("sep")])
        whole = [(around[0] + left, pieces, right + around[1]) for left, right in sides]
        with torch.no_grad():
            states = model(_lay_out(whole, vocab.pad, table.device)).last
            aims = [_average(states[n], *map(len, parts)) for n, parts in enumerate(whole)]
        short = [(left, pieces[:1], right) for left, _, right in whole]
        batch = _lay_out(short, vocab.pad, table.device)
        column = torch.tensor([len(left) for left, *_ in short], device=table.device)
        vector = first.clone().requires_grad_()
        optimizer = torch.optim.Adam([vector], lr=self.lr * float(table.std()))
        for _ in range(self.steps):
            x = embed_with(model.backbone, batch, column, vector.expand(len(short), -1))
            found = model.backbone.encode(x, batch).last
            loss = torch.stack(
                [(found[n, : len(aim)] - aim).square().sum(1).mean() for n, aim in enumerate(aims)]
            ).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return vector.detach()


def _average(states: Tensor, left: int, pieces: int, right: int) -> Tensor:
    """[left + 1 + right, W] the states of a row in which one state, their mean, replaces those of
    the pieces.
    """
    inside = states[left : left + pieces].mean(0, keepdim=True)
    return torch.cat([states[:left], inside, states[left + pieces : left + pieces + right]])


def _lay_out(
    rows: Sequence[tuple[list[int], list[int], list[int]]], pad: int, device: torch.device
) -> Batch:
    """Rows of several parts, one after the other."""
    joined = [[*left, *pieces, *right] for left, pieces, right in rows]
    length = np.array([len(ids) for ids in joined])
    ids = np.full((len(joined), int(length.max())), pad, np.int64)
    for row, own in enumerate(joined):
        ids[row, : len(own)] = own
    return collate(Rows(np.arange(len(ids)), {"text": Seq(ids, length)}), {}).to(device)
