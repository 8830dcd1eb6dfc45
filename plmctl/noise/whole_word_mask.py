"""Whole-word masking (an option of BERT's code; Cui et al., 2021, for Chinese): all pieces of a
word are hidden together.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

import numpy as np

from plmctl.core.parts import part_of
from plmctl.noise.groups import RandomGroups
from plmctl.noise.mask_tokens import MaskSettings, MaskTokens
from plmctl.text.vocab import Vocab


@part_of("noise")
class WholeWordMask(MaskTokens):
    """Hides words in random order until `rate` of the tokens are predicted; a word that would
    exceed this is skipped.

    `tracks.word_start` defines words: a word is its first piece and the pieces that continue it, or
    the characters of a segmented Chinese word (Cui et al., 2021, arXiv:1906.08101, sec. 3.1). The
    budget counts tokens, special ones included in the length, and each token separately becomes
    mask or random or stays (google-research/bert, create_pretraining_data.py). Differs: a piece
    that continues a word begins a group after a special token; the code joins it to the word before
    that token.
    """

    def __init__(self, *, vocab: Vocab, **masking: Unpack[MaskSettings]) -> None:
        super().__init__(
            select=partial(RandomGroups, vocab=vocab, shares=np.ones(1)), vocab=vocab, **masking
        )
