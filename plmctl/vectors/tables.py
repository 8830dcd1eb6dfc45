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
    """Makes the steps of rows that stand often in one update smaller, so that the weights of one
    row, over all places where it stands, do not add up to more than `bound`.
    """

    def __init__(self, rows: int, bound: float) -> None:
        self.totals, self.bound = torch.zeros(rows), bound

    def factors(self, rows: Tensor, weights: Tensor) -> Tensor:
        """[n] `bound / total` of each row [n], at most 1."""
        self.totals.index_add_(0, rows, weights)
        found = self.bound / self.totals.index_select(0, rows).clamp_(min=self.bound)
        self.totals.index_fill_(0, rows, 0)
        return found


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

    def move_inputs(self, words: Tensor, steps: Tensor, weights: Tensor) -> None:
        """Add a step, [n, D], to the input vector of each word: with n-grams to all of its rows, so
        that their mean moves by it (fastText's Model::update).

        Args:
            words: int64 [n].
            steps: is changed.
            weights: [n] of the pairs of a step, for `StepBound`.
        """
        if self.ngrams is None:
            steps.mul_(self.input_bound.factors(words, weights)[:, None])
            self.inputs.index_add_(0, words, steps)
            return
        different, back = torch.unique(words, return_inverse=True)
        together = torch.zeros(len(different), steps.shape[1]).index_add_(0, back, steps)
        total = torch.zeros(len(different)).index_add_(0, back, weights)
        rows, lengths = self._rows_of(different)
        factors = self.input_bound.factors(rows, total.repeat_interleave(lengths))
        spread = together.repeat_interleave(lengths, 0).mul_(factors[:, None])
        self.inputs.index_add_(0, rows, spread)

    def move_outputs(self, words: Tensor, steps: Tensor, weights: Tensor) -> None:
        """Add a step to the output vector of each word; as `move_inputs`."""
        steps.mul_(self.output_bound.factors(words, weights)[:, None])
        self.outputs.index_add_(0, words, steps)

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
