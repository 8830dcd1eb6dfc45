"""Rotated documents (Lewis et al., 2020): the document begins at a random token, and the model
restores it.
"""

from __future__ import annotations

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws, below
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.base import Denoising, split_source
from plmctl.noise.masking import expand_runs
from plmctl.noise.moves import find_stretches, make_movable, permute
from plmctl.noise.units import find_units
from plmctl.text.vocab import Vocab


@part_of("noise")
class DocumentRotate(Denoising):
    """`x_1 .. x_n` becomes `x_p .. x_n x_1 .. x_(p-1)`, p uniform in 1..n; `rate` of the documents
    are rotated.

    (Lewis et al., 2020, arXiv:1910.13461, sec. 2.2.) If special tokens divide a document, each
    stretch between them rotates.
    Differs: the public code (fairseq, denoising_dataset.py) draws p from 1..n+1, where n+1 leaves
    the document unchanged, as 1 does.
    """

    def __init__(self, *, vocab: Vocab, rate: float) -> None:
        if not 0 < rate <= 1:
            raise ConfigError(
                "noise.rate", rate, "0 < rate <= 1, the share of documents that are rotated"
            )
        self.vocab, self.rate = make_movable(vocab), rate

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        rows = split_source(rows)
        width = rows.seqs[rows.input].ids.shape[1]
        units = find_units(rows, self.vocab, words=False)
        start, length = find_stretches(units)
        word = draws.words_at(rows.key, "pivot", *np.divmod(start, width))
        pivot = below(word.astype(np.uint32), length)
        pivot[(word >> np.uint64(32)).astype(np.float64) >= self.rate * 2.0**32] = 0
        take = np.arange(len(units.ordinary))
        begin = np.stack([start + pivot, start], 1).ravel()
        size = np.stack([length - pivot, pivot], 1).ravel()
        take[units.ordinary] = expand_runs(begin, size)
        return permute(rows, take)
