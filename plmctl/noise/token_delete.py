"""Deleted tokens (Lewis et al., 2020): random tokens are removed without a mark, and the model
restores the text.
"""

from __future__ import annotations

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.noise.base import Denoising, split_source
from plmctl.noise.masking import NoiseBudget, Shuffled
from plmctl.noise.moves import keep_tokens, make_movable
from plmctl.noise.token_mask import take_first
from plmctl.text.vocab import Vocab


@part_of("noise")
class TokenDelete(Denoising):
    """Removes `ceil(rate * n)` of a row's n ordinary tokens, uniformly without replacement; its
    documents share them by length.

    (Lewis et al., 2020, arXiv:1910.13461, sec. 2.2; fairseq, denoising_dataset.py:
    mask_length=subword, replace_length=0.)
    """

    def __init__(self, *, vocab: Vocab, rate: float) -> None:
        self.pad, frame = vocab.pad, make_movable(vocab).special
        self.excluded = np.where(frame, ~np.uint32(0), np.uint32(0))  # [V]
        self.budget = NoiseBudget(
            rate=rate, max_predictions=None, selection="ceiling", count_specials=False
        )

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        rows = split_source(rows)
        excluded = self.excluded.take(rows.seqs[rows.input].ids)
        share = self.budget.of_documents(rows, draws, excluded == 0)
        removed = take_first(Shuffled(rows, draws, excluded), *share)
        keep = np.ones(excluded.shape, bool)
        keep[removed.row, removed.start] = False
        return keep_tokens(rows, keep, pad=self.pad)
