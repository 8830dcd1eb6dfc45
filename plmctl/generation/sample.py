"""Sampling: tokens drawn from the model's distribution, sharpened or truncated (Holtzman et al.,
2020, arXiv:1904.09751).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.generation.search import DecodingStep, Hypothesis, Rules, SearchFacts, Start
from plmctl.generation.walk import walk

COLDEST = 1e-6  # quotients of logits by it are far from infinite in fp32


@part_of("search")
class Sample:
    """`y_t ~ p(v | y_<t)^(1 / temperature)`, of the `top_k` likeliest tokens, of the fewest whose
    shares reach `top_p`.

    In this order, as the released code of Holtzman et al. and of GPT-2 (`top_k`: Fan et al., 2018,
    arXiv:1805.04833, sec. 5.4). `count` texts a row, the likeliest first; the score is `sum_t log
    p(y_t | y_<t)` under the model itself. The t-th number of text c of prompt i is a function of
    (seed, i, c, t) alone, whatever else is in the batch.
    """

    def __init__(
        self,
        *,
        temperature: float,
        top_k: int | None,
        top_p: float,
        seed: int,
        count: int = 1,
        min_length: int = 0,
        no_repeat_ngram: int = 0,
        first: int | None = None,
    ) -> None:
        if temperature < COLDEST:
            raise ConfigError(
                "search.temperature",
                temperature,
                f"{COLDEST:g} or more",
                fix="search=greedy takes the likeliest token",
            )
        if top_k is not None and top_k < 1:
            raise ConfigError("search.top_k", top_k, "1 or more, or null for all tokens")
        if not 0 < top_p <= 1:
            raise ConfigError("search.top_p", top_p, "0 < top_p <= 1 (1: all tokens)")
        if count < 1:
            raise ConfigError("search.count", count, "1 or more")
        if seed < 0:
            raise ConfigError("search.seed", seed, "0 or more")
        self.temperature, self.top_k, self.top_p, self.seed, self.count = (
            temperature,
            top_k,
            top_p,
            seed,
            count,
        )
        self.rules = Rules(min_length=min_length, no_repeat_ngram=no_repeat_ngram, first=first)
        self.fits = self.rules.fits

    @property
    def facts(self) -> SearchFacts:
        """Its settings, for a library that searches itself."""
        return SearchFacts(
            self.rules,
            count=self.count,
            draws=True,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            seed=self.seed,
        )

    def __call__(self, step: DecodingStep, start: Start) -> list[list[Hypothesis]]:
        return walk(step, start, self)

    def draw_numbers(self, key: int, text: int, length: int) -> np.ndarray:
        # multiples of 2^-24, so that fp32 makes none a 1
        drawn = np.random.default_rng([self.seed, key, text]).random(length)
        return np.floor(drawn * (1 << 24)) / (1 << 24)

    def choose(self, logp: Tensor, numbers: Tensor) -> Tensor:
        return self.draw(logp, numbers)

    def draw(self, logp: Tensor, numbers: Tensor) -> Tensor:
        """[N] the token at which the running sum of probabilities, the largest first, passes
        `numbers [N]`.
        """
        kept = logp.shape[1] if self.top_k is None else min(self.top_k, logp.shape[1])
        if kept < logp.shape[1]:
            values, ids = logp.topk(kept)
        elif self.top_p < 1:
            values, ids = logp.sort(-1, descending=True)
        else:
            values, ids = logp, None
        sums = torch.softmax(values / self.temperature, -1).cumsum(-1)
        total = sums[:, -1:]
        if self.top_p < 1:  # a token is kept if those before it do not reach top_p
            last = (sums < self.top_p).sum(-1, keepdim=True).clamp(max=kept - 1)
            total = sums.gather(1, last)
        index = torch.searchsorted(sums, numbers[:, None] * total, right=True).clamp(max=kept - 1)
        return (index if ids is None else ids.gather(1, index))[:, 0]
