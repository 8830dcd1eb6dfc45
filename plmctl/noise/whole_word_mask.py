"""Whole-word masking (an option of BERT's code; Cui et al., 2021, for Chinese): all pieces of a
word are hidden together.
"""

from __future__ import annotations

import numpy as np

from plmctl.core.parts import part_of
from plmctl.noise.groups import RandomGroups
from plmctl.noise.masking import Masking, MaskOrReplace, NoiseBudget
from plmctl.text.vocab import Vocab


@part_of("noise")
class WholeWordMask(Masking):
    """Hides words in random order until `rate` of the tokens are predicted; a word that would
    exceed this is skipped.

    `tracks.word_start` defines words: a word is its first piece and the pieces that continue it, or
    the characters of a segmented Chinese word (Cui et al., 2021, arXiv:1906.08101, sec. 3.1). The
    budget counts tokens, special ones included in the length, and each token separately becomes
    mask or random or stays (google-research/bert, create_pretraining_data.py). Differs: a piece
    that continues a word begins a group after a special token; the code joins it to the word before
    that token.
    """

    def __init__(
        self,
        *,
        vocab: Vocab,
        rate: float,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        max_predictions: int | None = None,
        selection: str = "exact",
        random_specials: bool = True,
        static: int | None = None,
    ) -> None:
        budget = NoiseBudget(rate=rate, max_predictions=max_predictions, selection=selection)
        super().__init__(
            select=RandomGroups(vocab=vocab, budget=budget, shares=np.ones(1)),
            corrupt=MaskOrReplace(
                vocab=vocab,
                mask_share=mask_share,
                random_share=random_share,
                random_specials=random_specials,
            ),
            static=static,
        )
