"""Dropped words (Lample et al., 2018): each word is gone with a small probability, and the model
is asked for the sentence.
"""

from __future__ import annotations

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws, below
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.base import Denoising, denoising
from plmctl.noise.masking import expand_runs
from plmctl.noise.moves import find_stretches, keep_tokens, movable
from plmctl.noise.units import Units, find_units
from plmctl.text.vocab import Vocab


@part_of("noise")
class WordDrop(Denoising):
    """Every word is dropped with probability `rate`, independently; where all of a stretch would
    go, one stays.

    (Lample et al., 2018, arXiv:1711.00043, sec. 2.3: p_wd = 0.1.)
    Differs: the public code (facebookresearch/UnsupervisedMT) puts one token of a bare sentence
    back, here a whole word stays.
    """

    reads = frozenset({"input", "tracks.word_start"})

    def __init__(self, *, vocab: Vocab, rate: float) -> None:
        self.vocab, self.limit = movable(vocab), threshold(rate)

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        rows = denoising(rows)
        shape = rows.seqs[rows.input].ids.shape
        found = find_units(rows, self.vocab, words=True)
        keep = ~strike_words(rows, draws, found, self.limit)
        start, length = find_stretches(found)
        if len(start):
            bare = ~np.logical_or.reduceat(
                (keep & found.ordinary)[found.ordinary], np.cumsum(length) - length
            )
            self._keep_one(rows, draws, found, start[bare], keep)
        return keep_tokens(rows, keep.reshape(shape), pad=self.vocab.pad)

    @staticmethod
    def _keep_one(
        rows: Rows, draws: Draws, found: Units, start: np.ndarray, keep: np.ndarray
    ) -> None:
        """Mark a random word of each stretch that begins at `start` (in place)."""
        first = found.of_slot[start].astype(np.int64)
        count = found.edge[found.stretch[first] + 1] - first
        word = draws.words_at(
            rows.key, "kept", *np.divmod(start, rows.seqs[rows.input].ids.shape[1])
        )
        chosen = first + below(word.astype(np.uint32), count)
        keep[expand_runs(found.start[chosen], found.length(chosen, chosen + 1))] = True


def threshold(rate: float) -> np.uint32:
    """`bits < threshold` happens with probability `rate` for uniform uint32 bits."""
    if not 0 < rate < 1:
        raise ConfigError("noise.rate", rate, "0 < rate < 1")
    return np.uint32(round(rate * 2**32))


def strike_words(rows: Rows, draws: Draws, found: Units, limit: np.uint32) -> np.ndarray:
    """[n*T] bool: all tokens of the ordinary words whose lot, independent of all others, is
    below `limit`.
    """
    lot = draws.bits(rows.key, "word", rows.seqs[rows.input].ids.shape[1]).ravel() < limit
    first = np.flatnonzero(lot & found.begins & found.ordinary)
    unit = found.of_slot[first].astype(np.int64)
    out = np.zeros(len(lot), bool)
    out[found.slots(unit, unit + 1)] = True
    return out
