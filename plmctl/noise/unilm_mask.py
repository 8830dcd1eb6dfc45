"""UniLM's masking (Dong et al., 2019): mostly single tokens, sometimes two or three in a row."""

from __future__ import annotations

from functools import partial
from typing import Unpack

import numpy as np

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.mask_tokens import MaskSettings, MaskTokens
from plmctl.noise.spans import Anchored, RandomSpans
from plmctl.text.vocab import Vocab


@part_of("noise")
class UnilmMask(MaskTokens):
    """A choice is one token with probability `1 - ngram_share`, else 2 .. max_tokens in a row, each
    length equally likely.

    Dong et al., 2019, arXiv:1905.03197, sec. 2.4 (80% one token, 20% a bigram or trigram) and
    microsoft/unilm, unilm-v1, loader_utils.py, get_masked_pos. A token that is predicted already is
    not chosen again, but an n-gram may run over one. It ends at special tokens and where the budget
    is used up. BERT's budget and 80/10/10 for each token separately. Differs: if less budget is
    left than an n-gram has tokens, the code cuts the n-gram to that many tokens; here it is cut to
    that many new tokens. The two differ only for a trigram that runs over a chosen token as the
    last choice of a row (1 row in 90).
    """

    def __init__(
        self,
        *,
        vocab: Vocab,
        ngram_share: float = 0.2,
        max_tokens: int = 3,
        **masking: Unpack[MaskSettings],
    ) -> None:
        if not 0 <= ngram_share <= 1:
            raise ConfigError("noise.ngram_share", ngram_share, "0 <= ngram_share <= 1")
        if max_tokens < 2:
            fix = "ngram_share=0 gives single tokens only"
            raise ConfigError("noise.max_tokens", max_tokens, "at least 2", fix=fix)
        shares = np.append(1 - ngram_share, np.full(max_tokens - 1, ngram_share / (max_tokens - 1)))
        super().__init__(
            select=partial(
                RandomSpans, vocab=vocab, shares=shares, words=False, sampler=Anchored()
            ),
            vocab=vocab,
            **masking,
        )
