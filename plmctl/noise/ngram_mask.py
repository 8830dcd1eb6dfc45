"""N-gram masking (Lan et al., 2020): runs of one to three whole words, short ones more often."""

from __future__ import annotations

import numpy as np

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.groups import RandomGroups
from plmctl.noise.masking import Masking, MaskOrReplace, NoiseBudget
from plmctl.text.vocab import Vocab


@part_of("noise")
class NgramMask(Masking):
    """Hides n words from each of the words in random order, `p(n) = (1/n) / sum(1/k, k = 1 ..
    max_words)`.

    Lan et al., 2020, arXiv:1909.11942, sec. 4.1, and google-research/albert,
    create_pretraining_data.py: an n-gram that would exceed the budget is shortened until it fits,
    or skipped; one with a token that is predicted already is skipped; n is not drawn again at the
    end of the text, the n-gram is only cut there. Each token separately becomes mask or random or
    stays.
    Differs: an n-gram also ends at a special token, where the code steps over the inner sep of a
    pair.
    """

    def __init__(
        self,
        *,
        vocab: Vocab,
        rate: float,
        max_words: int = 3,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        max_predictions: int | None = None,
        selection: str = "exact",
        random_specials: bool = True,
        static: int | None = None,
    ) -> None:
        if max_words < 1:
            raise ConfigError("noise.max_words", max_words, "at least 1")
        budget = NoiseBudget(rate=rate, max_predictions=max_predictions, selection=selection)
        super().__init__(
            select=RandomGroups(vocab=vocab, budget=budget, shares=1 / np.arange(1, max_words + 1)),
            corrupt=MaskOrReplace(
                vocab=vocab,
                mask_share=mask_share,
                random_share=random_share,
                random_specials=random_specials,
            ),
            static=static,
        )
