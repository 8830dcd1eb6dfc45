"""Permuted sentences (Lewis et al., 2020): a document's sentences in random order, which the model
restores.
"""

from __future__ import annotations

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import HALF, Draws
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.base import Denoising, split_source
from plmctl.noise.masking import expand_runs, find_document_begins
from plmctl.noise.moves import make_movable, permute
from plmctl.noise.units import find_units
from plmctl.text.vocab import Vocab


@part_of("noise")
class SentencePermute(Denoising):
    """`ceil(rate * s)` of a document's s sentences are permuted among themselves, uniformly; the
    others stay.

    (Lewis et al., 2020, arXiv:1910.13461, sec. 2.2 and 5.1: all of them.) If special tokens divide
    a document, sentences stay in their stretch.
    Differs: sentences are those of the corpus, `tracks.sentence`; the public code ends a sentence
    at any full stop.
    """

    reads = frozenset({"input", "tracks.sentence"})

    def __init__(self, *, vocab: Vocab, rate: float) -> None:
        if not 0 < rate <= 1:
            raise ConfigError(
                "noise.rate", rate, "0 < rate <= 1, the share of sentences that are permuted"
            )
        self.vocab, self.rate = make_movable(vocab), rate

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        rows = split_source(rows)
        seq = rows.seqs[rows.input]
        units = find_units(rows, self.vocab, words=False)
        begins = find_document_begins(seq.tracks["sentence"]).ravel() & units.ordinary
        begins[units.start[units.edge[:-1]]] = True
        # the first slots of sentences, and of special tokens, which are stretches by themselves
        start = np.flatnonzero(begins)
        stretch = units.stretch[start]
        order = self._order(rows, draws, start, stretch)
        take = expand_runs(start[order], np.diff(start, append=begins.size)[order])
        return permute(rows, take)

    def _order(
        self, rows: Rows, draws: Draws, start: np.ndarray, stretch: np.ndarray
    ) -> np.ndarray:
        """[s]: the sentence that moves to each position."""
        word = draws.words_at(
            rows.key, "sentence", *np.divmod(start, rows.seqs[rows.input].ids.shape[1])
        )
        first = np.searchsorted(stretch, stretch)
        size = np.bincount(stretch)[stretch]
        # the upper half decides which sentences move, the lower half where to
        by_lot = np.lexsort((word >> HALF, stretch))
        chosen = np.zeros(len(start), bool)
        chosen[by_lot] = np.arange(len(start)) - first < np.ceil(self.rate * size - 1e-9)
        moving = np.flatnonzero(chosen)
        order = np.arange(len(start))
        order[moving] = moving[np.lexsort((word[moving].astype(np.uint32), stretch[moving]))]
        return order
