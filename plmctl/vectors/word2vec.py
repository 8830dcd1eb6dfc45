"""word2vec (Mikolov et al., 2013), with negatives that are shared so that the work is products of
matrices (Ji et al., 2016).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count, Number, Whole
from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.knowledge.subwords import Ngrams
from plmctl.vectors.base import Show, VectorMethod
from plmctl.vectors.corpus import WordCorpus
from plmctl.vectors.noise_words import NoiseWords
from plmctl.vectors.tables import WordTables
from plmctl.vectors.windows import WindowSettings, WordRows, read_rows

LAST = 1e-4  # of the learning rate, at the end (word2vec's own code)


@dataclass(frozen=True, kw_only=True)
class Word2vec(VectorMethod):
    """Vectors of words by prediction, against words that are drawn.

    The rate falls linearly over all words of all epochs. A row of T words shares its N negatives,
    each of which counts k / N (Ji et al., 2016, arXiv:1604.04661, share them within a window); one
    update is M rows. Differs: the published code makes an update after each word, with k negatives
    of its own, and passes over a negative that is the right word. Words that stand often in one
    update would be moved too far by the sum of their steps, so `StepBound` makes these smaller.

    Args:
        epochs: passes over the text.
        window: W, words on each side at most; each word draws from 1 .. W.
        negatives: k, for each right word.
        power: of the counts, by which negatives are drawn.
        sample: t; of a word with the share f of the text, sqrt(t / f) + t / f stays.
        lr: the first learning rate.
        shared: N.
        row: T.
        rows: M.
        least_ngram: characters of the shortest n-gram of a word.
        most_ngram: of the longest; 0: words have no n-grams.
        buckets: rows that the n-grams share.
        bound: of `StepBound`.
    """

    epochs: Count
    window: Count
    negatives: Count
    power: Number
    sample: Number
    lr: Amount
    shared: Count
    row: Count
    rows: Count
    least_ngram: Count
    most_ngram: Whole
    buckets: Count
    bound: Amount

    def learn(self, corpus: WordCorpus, *, width: int, seed: int, show: Show) -> StaticVectors:
        ngrams = Ngrams(self.least_ngram, self.most_ngram, self.buckets)
        drawn = torch.Generator().manual_seed(seed)
        with torch.inference_mode():
            spelled = ngrams if self.most_ngram else None
            tables = WordTables(corpus.words, width, spelled, self.bound, drawn)
            for rows, rate in self.schedule(corpus, seed):
                self.update(tables, rows, rate)
                show(rows.done)
            return tables.finish()

    def schedule(self, corpus: WordCorpus, seed: int) -> Iterator[tuple[WordRows, float]]:
        """The rows of all epochs, each with its learning rate."""
        settings = WindowSettings(self.window, self.sample, self.row, self.rows, self.shared)
        noise, total = NoiseWords(corpus.counts, self.power), self.epochs * corpus.total
        done = 0
        for epoch in range(self.epochs):
            for rows in read_rows(corpus, settings, noise, np.random.default_rng([seed, epoch])):
                rate = self.lr * max(1 - done / total, LAST)
                done = epoch * corpus.total + rows.done
                yield WordRows(rows.around, rows.inside, rows.negatives, done), rate

    def update(self, tables: WordTables, rows: WordRows, rate: float) -> None:
        """One step against the gradient of `loss`, of size `rate`."""
        raise NotImplementedError

    def loss(self, tables: WordTables, rows: WordRows) -> Tensor:
        """The sum over all words of the rows, which `update` makes smaller."""
        raise NotImplementedError


@part_of("method")
@dataclass(frozen=True, kw_only=True)
class SkipGram(Word2vec):
    """`- sum_c [log s(u_t v_c) + (k / N) sum_n log s(- u_t v_n)]` over the words c in the window of
    each word t, with u inputs, v outputs, s the logistic function (Mikolov et al., 2013,
    arXiv:1310.4546, eq. 4).
    """

    def update(self, tables: WordTables, rows: WordRows, rate: float) -> None:
        words, columns = rows.words.reshape(-1), _columns(rows)
        seen = tables.look_up(words).view(*rows.words.shape, -1)  # [M, T, D]
        asked = _gather(tables.outputs, columns)
        weight = self._weigh(rows).mul_(rate)  # [M, T, C]
        steps = torch.bmm(seen, asked.mT).sigmoid_()
        steps[..., : rows.around.shape[1]].sub_(1)
        steps.mul_(weight).neg_()
        of_inputs, of_outputs = torch.bmm(steps, asked), torch.bmm(steps.mT, seen)
        width = seen.shape[2]
        tables.move_inputs(words, of_inputs.view(-1, width), weight.sum(2).view(-1))
        tables.move_outputs(columns.view(-1), of_outputs.view(-1, width), weight.sum(1).view(-1))

    def _weigh(self, rows: WordRows) -> Tensor:
        """[M, T, T + 2 W + N] how much each pair counts."""
        inside = rows.inside.float()
        share = inside.sum(2, keepdim=True) * (self.negatives / rows.negatives.shape[1])
        return torch.cat([inside, share.expand(-1, -1, rows.negatives.shape[1])], 2)

    def loss(self, tables: WordTables, rows: WordRows) -> Tensor:
        seen = tables.look_up(rows.words.reshape(-1)).view(*rows.words.shape, -1)
        scores = torch.bmm(seen, tables.outputs[_columns(rows)].mT)
        scores[..., rows.around.shape[1] :].neg_()
        return -(self._weigh(rows) * logsigmoid(scores)).sum()


@part_of("method")
@dataclass(frozen=True, kw_only=True)
class CBOW(Word2vec):
    """`- log s(h_t v_t) - (k / N) sum_n log s(- h_t v_n)`, h_t the mean of the inputs in the window
    of t (Mikolov et al., 2013, arXiv:1301.3781, sec. 3.1). As in word2vec's own code, the step of
    h_t is added to each word of the window, and not its share of it.
    """

    def update(self, tables: WordTables, rows: WordRows, rate: float) -> None:
        columns, inside = rows.around.reshape(-1), rows.inside.float()
        near, mean = self._average(tables, rows)  # [M, T, 1], [M, T, D]
        right, wrong = (_gather(tables.outputs, ids) for ids in (rows.words, rows.negatives))
        known = near.gt(0).float().mul_(rate)
        hit = (mean * right).sum(2, keepdim=True).sigmoid_().neg_().add_(1).mul_(known)  # [M, T, 1]
        miss = torch.bmm(mean, wrong.mT).sigmoid_().mul_(known)  # [M, T, N]
        miss.mul_(-self.negatives / rows.negatives.shape[1])
        steps = torch.baddbmm(hit * right, miss, wrong)  # [M, T, D]
        width = steps.shape[2]
        weights = torch.bmm(inside.mT, known.mul(1 + self.negatives)).view(-1)
        tables.move_inputs(columns, torch.bmm(inside.mT, steps).view(-1, width), weights)
        asked = torch.cat([rows.words, rows.negatives], 1).view(-1)
        share = known.sum(1).mul(self.negatives / rows.negatives.shape[1])  # [M, 1]
        weights = torch.cat([known.squeeze(2), share.expand_as(rows.negatives)], 1).view(-1)
        moved = torch.cat([hit * mean, torch.bmm(miss.mT, mean)], 1).view(-1, width)
        tables.move_outputs(asked, moved, weights)

    def _average(self, tables: WordTables, rows: WordRows) -> tuple[Tensor, Tensor]:
        """(words in each window [M, T, 1], the mean of their inputs [M, T, D])."""
        inside = rows.inside.float()
        around = tables.look_up(rows.around.reshape(-1)).view(*rows.around.shape, -1)
        near = inside.sum(2, keepdim=True)
        return near, torch.bmm(inside / near.clamp(min=1), around)

    def loss(self, tables: WordTables, rows: WordRows) -> Tensor:
        near, mean = self._average(tables, rows)
        right = (mean * tables.outputs[rows.words]).sum(2)
        wrong = torch.bmm(mean, tables.outputs[rows.negatives].mT)
        of_wrong = logsigmoid(-wrong).sum(2) * (self.negatives / rows.negatives.shape[1])
        return -((logsigmoid(right) + of_wrong) * near.squeeze(2).gt(0)).sum()


def _gather(table: Tensor, words: Tensor) -> Tensor:
    """[..., D] the rows of words of any shape."""
    return table.index_select(0, words.reshape(-1)).view(*words.shape, -1)


def _columns(rows: WordRows) -> Tensor:
    """[M, T + 2 W + N] the words that the words of a row are compared with."""
    return torch.cat([rows.around, rows.negatives], 1)
