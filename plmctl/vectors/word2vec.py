"""word2vec (Mikolov et al., 2013), with negatives that are shared so that the work is products of
matrices (Ji et al., 2016).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

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

LAST = 1e-4  # share of the learning rate that is left at the end (word2vec's own code)


@dataclass(frozen=True, kw_only=True)
class Word2vec(VectorMethod):
    """Vectors of words by prediction, against words that are drawn.

    The rate falls linearly over all words of all epochs. A row of R words shares its N negatives,
    each of which counts k / N (Ji et al., 2016, arXiv:1604.04661, share them within a window); one
    update is M rows, all of whose words are read first and moved then. Differs: the published code
    makes an update after each word, with k negatives of its own. It passes over a negative that is
    the right word. Words that stand often in one update would be moved too far by the sum of their
    steps, so `StepBound` makes these smaller.

    Args:
        epochs: passes over the text.
        window: W, words on each side at most; each word draws from 1 .. W.
        negatives: k, for each right word.
        power: The power of the counts by which negatives are drawn.
        sample: t; of a word with the share f of the text, sqrt(t / f) + t / f stays.
        lr: the first learning rate.
        shared: N.
        row: R.
        rows: M.
        least_ngram: characters of the shortest n-gram of a word.
        most_ngram: The length of the longest n-gram; 0: words have no n-grams.
        buckets: rows that the n-grams share.
        bound: The bound of `StepBound`.
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
    single: ClassVar[bool]  # a word is predicted once, from its window

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

    @property
    def settings(self) -> WindowSettings:
        return WindowSettings(
            reach=self.window,
            sample=self.sample,
            row=self.row,
            rows=self.rows,
            shared=self.shared,
            negatives=self.negatives,
            single=self.single,
        )

    def schedule(self, corpus: WordCorpus, seed: int) -> Iterator[tuple[WordRows, float]]:
        """The rows of all epochs, each with its learning rate."""
        noise, total = NoiseWords(corpus.counts, self.power), self.epochs * corpus.total
        done = 0
        for epoch in range(self.epochs):
            for rows in read_rows(
                corpus, self.settings, noise, np.random.default_rng([seed, epoch])
            ):
                rate = self.lr * max(1 - done / total, LAST)
                done = epoch * corpus.total + rows.done
                yield replace(rows, done=done), rate

    def _look_up(self, tables: WordTables, rows: WordRows) -> tuple[Tensor, Tensor]:
        """The output vectors of the words around, [C T, D], and of the negatives, [M, N, D]."""
        found = tables.outputs.index_select(0, rows.asked)
        around = rows.bands.around
        return found[:around], found[around:].view(-1, self.shared, found.shape[1])

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

    single: ClassVar[bool] = False

    def update(self, tables: WordTables, rows: WordRows, rate: float) -> None:
        bands, seen = rows.bands, tables.look_up(rows.words)  # [L, D]
        around, drawn = self._look_up(tables, rows)
        near = bands.cut(around)  # [B, T + 2 W, D]
        groups = seen.view(len(drawn), -1, seen.shape[1])  # [M, R, D]
        tiles = seen.view(len(near), -1, seen.shape[1])  # [B, T, D]
        hits = torch.bmm(near, tiles.mT).sigmoid_().sub_(1).mul_(rows.inside.mT)
        misses = torch.bmm(drawn, groups.mT).sigmoid_()  # [M, N, R]
        misses.mul_(rows.share.view(len(drawn), 1, -1))
        of_seen = torch.bmm(hits.mT, near).view(groups.shape).baddbmm_(misses.mT, drawn)
        tables.move_inputs(rows.words, of_seen, rows.of_inputs, rate)
        steps = tables.output_bound.find_steps(rows.asked, rows.of_outputs, rate)
        tables.move_outputs(rows.around, bands.add_up(hits, tiles), steps[: bands.around])
        tables.move_outputs(rows.drawn, torch.bmm(misses, groups), steps[bands.around :])

    def loss(self, tables: WordTables, rows: WordRows) -> Tensor:
        seen = tables.look_up(rows.words)
        near, drawn = self._look_up(tables, rows)
        near = rows.bands.cut(near)
        hits = logsigmoid(torch.bmm(seen.view(len(near), -1, seen.shape[1]), near.mT))
        misses = logsigmoid(-torch.bmm(seen.view(len(drawn), -1, seen.shape[1]), drawn.mT))
        return -(rows.inside * hits).sum() - (rows.share * misses.flatten(0, 1).sum(1)).sum()


@part_of("method")
@dataclass(frozen=True, kw_only=True)
class CBOW(Word2vec):
    """`- log s(h_t v_t) - (k / N) sum_n log s(- h_t v_n)`, h_t the mean of the inputs in the window
    of t (Mikolov et al., 2013, arXiv:1301.3781, sec. 3.1). As in word2vec's own code, the step of
    h_t is added to each word of the window, and not its share of it.
    """

    single: ClassVar[bool] = True

    def update(self, tables: WordTables, rows: WordRows, rate: float) -> None:
        bands, inside, scale = rows.bands, rows.inside, rows.near.clamp(min=1).reciprocal_()
        total = torch.bmm(inside, bands.cut(tables.look_up(rows.around))).flatten(0, 1)  # [L, D]
        around, drawn = self._look_up(tables, rows)
        right = around[bands.reach : bands.reach + bands.length]
        groups = total.view(len(drawn), -1, total.shape[1])  # [M, R, D]
        hits = torch.from_numpy(np.einsum("ld,ld->l", total.numpy(), right.numpy()))
        hits = hits.mul_(scale).sigmoid_().sub_(1).mul_(rows.made)  # [L]
        scales = scale.view(len(drawn), 1, -1)
        misses = torch.bmm(drawn, groups.mT).mul_(scales).sigmoid_()  # [M, N, R]
        misses.mul_(rows.share.view(len(drawn), 1, -1))
        of_mean = right.mul_(hits[:, None]).view(groups.shape).baddbmm_(misses.mT, drawn)
        of_near = bands.add_up(inside.mT, of_mean.view(len(inside), -1, total.shape[1]))
        tables.move_inputs(rows.around, of_near, rows.of_inputs, rate)
        steps = tables.output_bound.find_steps(rows.asked, rows.of_outputs, rate)
        of_drawn = torch.bmm(misses.mul_(scales), groups)
        tables.move_outputs(rows.drawn, of_drawn, steps[bands.around :])
        hits.mul_(scale).mul_(steps[bands.reach : bands.reach + bands.length])
        tables.move_outputs(rows.words, total, hits)

    def loss(self, tables: WordTables, rows: WordRows) -> Tensor:
        bands, scale = rows.bands, rows.near.clamp(min=1).reciprocal()
        around, drawn = self._look_up(tables, rows)
        total = torch.bmm(rows.inside, bands.cut(tables.look_up(rows.around))).flatten(0, 1)
        mean = total * scale[:, None]
        hits = logsigmoid((mean * around[bands.reach : bands.reach + bands.length]).sum(1))
        groups = mean.view(len(drawn), -1, mean.shape[1])
        misses = logsigmoid(-torch.bmm(groups, drawn.mT)).flatten(0, 1).sum(1)
        return -(rows.made * hits).sum() - (rows.share * misses).sum()
