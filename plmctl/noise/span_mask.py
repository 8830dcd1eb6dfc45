"""Span masking (Joshi et al., 2020): runs of whole words of geometric length, hidden together."""

from __future__ import annotations

import numpy as np

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.masking import Masking, NoiseBudget
from plmctl.noise.spans import MaskOrReplaceSpan, RandomSpans, Sampler
from plmctl.text.vocab import Vocab


@part_of("noise")
class SpanMask(Masking):
    """Spans of `P(l) ~ p * (1 - p)^(l - 1)` words, l = 1 .. max_words, until `rate` of the tokens
    are predicted.

    Joshi et al., 2020, arXiv:1907.10529, sec. 3.1, and facebookresearch/SpanBERT,
    pretraining/fairseq/data/masking.py: budget `ceil(rate * tokens)` without special ones; sampler
    `spans.Anchored`; one random decision for each span (spans that touch are one): 80% become
    masks, 10% random tokens by their frequency in the corpus (`random_unigram`), 10% stay. Writes
    spans.chosen `[m, 3]` = row, start, length for the span-boundary objective. The `sampler`
    `spans.Segmented` keeps spans apart, so that their lengths are the drawn lengths.
    Differs: a span also ends at a special token, and random tokens are never special; the published
    rows are one segment.
    """

    def __init__(
        self,
        *,
        vocab: Vocab,
        sampler: Sampler,
        rate: float,
        p: float = 0.2,
        max_words: int = 10,
        words: bool = True,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        random_unigram: bool = True,
        max_predictions: int | None = None,
        selection: str = "ceiling",
        static: int | None = None,
        corpus_sample: np.ndarray | None = None,
    ) -> None:
        if not 0 < p < 1:
            raise ConfigError("noise.p", p, "0 < p < 1")
        if max_words < 1:
            raise ConfigError("noise.max_words", max_words, "at least 1")
        budget = NoiseBudget(
            rate=rate, max_predictions=max_predictions, selection=selection, count_specials=False
        )
        shares = p * (1 - p) ** np.arange(max_words)
        super().__init__(
            select=RandomSpans(
                vocab=vocab, budget=budget, shares=shares, words=words, sampler=sampler
            ),
            corrupt=MaskOrReplaceSpan(
                vocab=vocab,
                mask_share=mask_share,
                random_share=random_share,
                random_specials=False,
                sample=corpus_sample if random_unigram else None,
            ),
            static=static,
        )
