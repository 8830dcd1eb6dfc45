"""Dropped words (Lample et al., 2018): each word is removed with a small probability, and the model
restores the sentence.
"""

from __future__ import annotations

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws, below
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.base import Denoising, split_source
from plmctl.noise.masking import expand_runs
from plmctl.noise.moves import find_stretches, keep_tokens, make_movable
from plmctl.noise.units import Units, find_units
from plmctl.text.vocab import Vocab


@part_of("noise")
class WordDrop(Denoising):
    """Drops each word with probability `rate`, independently; if all of a stretch would be dropped,
    one word stays.

    (Lample et al., 2018, arXiv:1711.00043, sec. 2.3: p_wd = 0.1.)
    Differs: the public code (facebookresearch/UnsupervisedMT) keeps one token of an empty sentence,
    here a whole word stays.
    """

    reads = frozenset({"input", "tracks.word_start"})

    def __init__(self, *, vocab: Vocab, rate: float) -> None:
        self.vocab, self.limit = make_movable(vocab), threshold(rate)

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        rows = split_source(rows)
        shape = rows.seqs[rows.input].ids.shape
        units = find_units(rows, self.vocab, words=True)
        keep = ~strike_words(rows, draws, units, self.limit)
        start, length = find_stretches(units)
        if len(start):
            bare = ~np.logical_or.reduceat(
                (keep & units.ordinary)[units.ordinary], np.cumsum(length) - length
            )
            self._keep_one(rows, draws, units, start[bare], keep)
        return keep_tokens(rows, keep.reshape(shape), pad=self.vocab.pad)

    @staticmethod
    def _keep_one(
        rows: Rows, draws: Draws, units: Units, start: np.ndarray, keep: np.ndarray
    ) -> None:
        """Mark a random word of each stretch that begins at `start` (in place)."""
        first = units.of_slot[start].astype(np.int64)
        count = units.edge[units.stretch[first] + 1] - first
        word = draws.words_at(
            rows.key, "kept", *np.divmod(start, rows.seqs[rows.input].ids.shape[1])
        )
        chosen = first + below(word.astype(np.uint32), count)
        keep[expand_runs(units.start[chosen], units.length(chosen, chosen + 1))] = True


def threshold(rate: float) -> np.uint32:
    """The number such that `bits < threshold` has probability `rate` for uniform uint32 bits."""
    if not 0 < rate < 1:
        raise ConfigError("noise.rate", rate, "0 < rate < 1")
    return np.uint32(round(rate * 2**32))


def strike_words(rows: Rows, draws: Draws, units: Units, limit: np.uint32) -> np.ndarray:
    """[n*T] bool: all tokens of the ordinary words whose random number, independent of all others,
    is below `limit`.
    """
    lot = draws.bits(rows.key, "word", rows.seqs[rows.input].ids.shape[1]).ravel() < limit
    first = np.flatnonzero(lot & units.begins & units.ordinary)
    unit = units.of_slot[first].astype(np.int64)
    out = np.zeros(len(lot), bool)
    out[units.slots(unit, unit + 1)] = True
    return out
