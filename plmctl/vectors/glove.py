"""GloVe (Pennington et al., 2014): vectors of words whose products are the logarithms of how often
these stand near each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count
from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.vectors.base import Show, VectorMethod
from plmctl.vectors.cooccurrence import count_near
from plmctl.vectors.corpus import WordCorpus


@part_of("method")
@dataclass(frozen=True, kw_only=True)
class GloVe(VectorMethod):
    """`sum_ij f(X_ij) (u_i v_j + a_i + b_j - log X_ij)^2 / 2`, with `f(x) = min(1, (x / x_max) **
    power)`; the vector of a word is u + v (Pennington et al., 2014, eq. 8 and 9, sec. 4.2).

    AdaGrad, whose squares start at 1 (the published code). Differs: one update is a batch of pairs
    in random order, whose gradients are added up for each word and squared before the step.

    Args:
        epochs: passes over the pairs.
        window: words on each side.
        x_max: The count from which on all pairs count the same.
        power: The power of the counts below it.
        lr: The learning rate of AdaGrad.
        batch_size: pairs of an update.
    """

    epochs: Count
    window: Count
    x_max: Amount
    power: Amount
    lr: Amount
    batch_size: Count

    def learn(self, corpus: WordCorpus, *, width: int, seed: int, show: Show) -> StaticVectors:
        pairs = count_near(corpus, self.window)
        if not len(pairs.first):
            raise DataError("no two frequent words stand in one sentence", fix="more text")
        ends = [torch.from_numpy(each) for each in (pairs.first, pairs.second)]
        counts = torch.from_numpy(pairs.counts).float()
        with torch.inference_mode():
            sides = self.start(len(corpus.words), width, seed)
            generator = np.random.default_rng(seed)
            for epoch in range(self.epochs):
                order = torch.from_numpy(generator.permutation(len(counts)))
                for start in range(0, len(counts), self.batch_size):
                    some = order[start : start + self.batch_size]
                    self.update(sides, ends[0][some], ends[1][some], counts[some])
                    share = epoch + min(1, (start + self.batch_size) / len(counts))
                    show(int(corpus.total * share))
            u, v = (side.table[:, :width] for side in sides)
            return StaticVectors(corpus.words, (u + v).numpy())

    def start(self, size: int, width: int, seed: int) -> tuple[AdaGradTable, AdaGradTable]:
        """The two sides, each number within 0.5 / D (the published code)."""
        drawn = torch.Generator().manual_seed(seed)
        u, v = ((torch.rand(size, width + 1, generator=drawn) - 0.5) / width for _ in range(2))
        return AdaGradTable(u), AdaGradTable(v)

    def update(
        self,
        sides: tuple[AdaGradTable, AdaGradTable],
        first: Tensor,
        second: Tensor,
        counts: Tensor,
    ) -> None:
        """One step for a batch of pairs, [n] all three."""
        u, v = sides[0].table[first], sides[1].table[second]  # [n, D + 1], the bias behind
        error = (u[:, :-1] * v[:, :-1]).sum(1) + u[:, -1] + v[:, -1] - counts.log()
        error *= (counts / self.x_max).clamp(max=1) ** self.power
        one = torch.ones(len(counts), 1)
        sides[0].step(first, error[:, None] * torch.cat([v[:, :-1], one], 1), self.lr)
        sides[1].step(second, error[:, None] * torch.cat([u[:, :-1], one], 1), self.lr)


class AdaGradTable:
    """`table` [V, D] with, for each number, the sum of its squared gradients so far, from 1."""

    def __init__(self, table: Tensor) -> None:
        self.table, self.squares = table, torch.ones_like(table)

    def step(self, rows: Tensor, gradients: Tensor, rate: float) -> None:
        """`- rate g / sqrt(sum g^2)`, g the sum of the gradients [n, D] of each row [n]."""
        different, back = torch.unique(rows, return_inverse=True)
        together = gradients.new_zeros(len(different), gradients.shape[1])
        together.index_add_(0, back, gradients)
        squares = self.squares[different].addcmul_(together, together)
        self.squares[different] = squares
        self.table.index_add_(0, different, together / squares.sqrt(), alpha=-rate)
