"""Deleted tokens (Lewis et al., 2020): random tokens are gone without a trace, and the model is
asked for the whole text.
"""

from __future__ import annotations

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.noise.base import Denoising, denoising
from plmctl.noise.masking import NoiseBudget, Shuffled
from plmctl.noise.moves import keep_tokens, movable
from plmctl.noise.token_mask import first_tokens
from plmctl.text.vocab import Vocab


@part_of("noise")
class TokenDelete(Denoising):
    """`ceil(rate * n)` of a row's n ordinary tokens, uniformly without replacement; its documents
    share them by length.

    (Lewis et al., 2020, arXiv:1910.13461, sec. 2.2; fairseq, denoising_dataset.py:
    mask_length=subword, replace_length=0.)
    """

    def __init__(self, *, vocab: Vocab, rate: float) -> None:
        self.pad, frame = vocab.pad, movable(vocab).special
        self.excluded = np.where(frame, ~np.uint32(0), np.uint32(0))  # [V]
        self.budget = NoiseBudget(
            rate=rate, max_predictions=None, selection="ceiling", count_specials=False
        )

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        rows = denoising(rows)
        excluded = self.excluded.take(rows.seqs[rows.input].ids)
        share = self.budget.of_documents(rows, draws, excluded == 0)
        gone = first_tokens(Shuffled(rows, draws, excluded), *share)
        keep = np.ones(excluded.shape, bool)
        keep[gone.row, gone.start] = False
        return keep_tokens(rows, keep, pad=self.pad)
