"""The two tables of vectors that word2vec learns, of words as inputs and as outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.knowledge.subwords import Ngrams, Subwords


class StepBound:
    """Makes the steps of rows that occur often in one update smaller. The weights of one row, over
    all its positions, times the rate then add up to at most `bound`.
    """

    def __init__(self, rows: int, bound: float) -> None:
        self.totals, self.bound = torch.zeros(rows), bound

    def find_steps(self, rows: Tensor, weights: Tensor, rate: float) -> Tensor:
        """[n] `- min(rate, bound / total)`, how far each row, [n], goes along its gradient."""
        self.totals.index_add_(0, rows, weights)
        totals = self.totals.index_select(0, rows).clamp_(min=self.bound / rate)
        self.totals.index_fill_(0, rows, 0)
        return totals.reciprocal_().mul_(-self.bound)


class WordTables:
    """`inputs` float32 [V + B, D] and `outputs` float32 [V, D]; the input vector of a word is its
    row, or with n-grams the mean of its row and theirs (Bojanowski et al., 2017).

    Start (word2vec's own code): inputs uniform within 0.5 / D, outputs 0.
    """

    def __init__(
        self,
        words: Sequence[str],
        width: int,
        ngrams: Ngrams | None,
        bound: float,
        generator: torch.Generator,
    ) -> None:
        self.words, self.ngrams = words, ngrams
        rows = len(words) + (ngrams.buckets if ngrams else 0)
        self.inputs = (torch.rand(rows, width, generator=generator) - 0.5) / width
        self.outputs = torch.zeros(len(words), width)
        self.input_bound, self.output_bound = (StepBound(n, bound) for n in (rows, len(words)))
        if ngrams:
            found = [[n, *(len(words) + b for b in ngrams.find(w))] for n, w in enumerate(words)]
            self.rows = torch.from_numpy(np.concatenate([np.array(each) for each in found]))
            self.lengths = torch.tensor([len(each) for each in found])
            self.starts = self.lengths.cumsum(0) - self.lengths

    def look_up(self, words: Tensor) -> Tensor:
        """[n, D] the input vectors of words, int64 [n]."""
        if self.ngrams is None:
            return self.inputs.index_select(0, words)
        different, back = torch.unique(words, return_inverse=True)
        rows, lengths = self._rows_of(different)
        bags = embedding_bag(rows, self.inputs, lengths.cumsum(0) - lengths, mode="mean")
        return bags.index_select(0, back)

    def move_inputs(self, words: Tensor, gradients: Tensor, weights: Tensor, rate: float) -> None:
        """Go against the gradient of the input vector of each word: with n-grams all of its rows
        do, so that their mean does (fastText's Model::update).

        Args:
            words: int64 [n].
            gradients: [..., D], n together.
            weights: [n] of the pairs of a step, for `StepBound`.
            rate: The learning rate.
        """
        if self.ngrams is None:
            steps = self.input_bound.find_steps(words, weights, rate)
            _add_scaled(self.inputs, words, gradients, steps)
            return
        different, back = torch.unique(words, return_inverse=True)
        together = torch.zeros(len(different), gradients.shape[-1])
        together.index_add_(0, back, gradients.reshape(-1, gradients.shape[-1]))
        total = torch.zeros(len(different)).index_add_(0, back, weights)
        rows, lengths = self._rows_of(different)
        steps = self.input_bound.find_steps(rows, total.repeat_interleave(lengths), rate)
        spread = together.repeat_interleave(lengths, 0).mul_(steps[:, None])
        self.inputs.index_add_(0, rows, spread)

    def move_outputs(self, words: Tensor, gradients: Tensor, steps: Tensor) -> None:
        """Go along the gradient of the output vector of each word.

        Args:
            words: int64 [n].
            gradients: [..., D], n together.
            steps: [n] how far, of `output_bound`.
        """
        _add_scaled(self.outputs, words, gradients, steps)

    def _rows_of(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """(the rows of all words, one word after the other; how many each has)."""
        lengths = self.lengths[words]
        ends = lengths.cumsum(0)
        within = torch.arange(int(ends[-1])) - (ends - lengths).repeat_interleave(lengths)
        return self.rows[self.starts[words].repeat_interleave(lengths) + within], lengths

    def finish(self) -> StaticVectors:
        """The vectors of all words, and those of n-grams."""
        made = self.look_up(torch.arange(len(self.words))).numpy()
        subwords = None
        if self.ngrams:
            subwords = Subwords(self.ngrams, self.inputs[len(self.words) :].numpy())
        return StaticVectors(self.words, made, subwords)


def _add_scaled(table: Tensor, rows: Tensor, vectors: Tensor, factors: Tensor) -> None:
    """Add to each row, int64 [n], one of n vectors, [..., D], times a factor, [n]."""
    scaled = vectors * factors.view(*vectors.shape[:-1], 1)
    table.index_add_(0, rows, scaled.view(-1, vectors.shape[-1]))
