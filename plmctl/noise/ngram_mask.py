"""N-gram masking (Lan et al., 2020): runs of one to three whole words, short ones more often."""

from __future__ import annotations

from functools import partial
from typing import Unpack

import numpy as np

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.groups import RandomGroups
from plmctl.noise.mask_tokens import MaskSettings, MaskTokens
from plmctl.text.vocab import Vocab


@part_of("noise")
class NgramMask(MaskTokens):
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
        self, *, vocab: Vocab, max_words: int = 3, **masking: Unpack[MaskSettings]
    ) -> None:
        if max_words < 1:
            raise ConfigError("noise.max_words", max_words, "at least 1")
        super().__init__(
            select=partial(RandomGroups, vocab=vocab, shares=1 / np.arange(1, max_words + 1)),
            vocab=vocab,
            **masking,
        )
