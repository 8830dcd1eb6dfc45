"""Blanked words (Lample et al., 2018, public code): masks replace random words, and the model
restores the sentence.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.noise.base import Denoising, find_mask, split_source
from plmctl.noise.units import find_units
from plmctl.noise.word_drop import strike_words, threshold
from plmctl.text.vocab import Vocab


@part_of("noise")
class WordBlank(Denoising):
    """Hides each word with probability `rate`, independently; each of its tokens becomes the mask.

    (Lample et al., 2018, arXiv:1804.07755, public code: facebookresearch/UnsupervisedMT,
    NMT/src/trainer.py.)
    """

    reads = frozenset({"input", "tracks.word_start"})

    def __init__(self, *, vocab: Vocab, rate: float) -> None:
        self.mask = find_mask(vocab, "word_blank")
        self.vocab, self.limit = vocab, threshold(rate)

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        rows = split_source(rows)
        seq = rows.seqs[rows.input]
        hidden = strike_words(rows, draws, find_units(rows, self.vocab, words=True), self.limit)
        ids = np.where(hidden.reshape(seq.ids.shape), np.asarray(self.mask, seq.ids.dtype), seq.ids)
        return rows.with_seq(rows.input, replace(seq, ids=ids))
