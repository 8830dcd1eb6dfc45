"""Sampling: tokens drawn from the model's distribution, sharpened or truncated (Holtzman et al.,
2020, arXiv:1904.09751).
"""

from __future__ import annotations

from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.generation.search import (
    DecodingStep,
    Hypothesis,
    Ruled,
    RuleSettings,
    SearchFacts,
    Start,
)
from plmctl.generation.walk import walk

COLDEST = 1e-6  # quotients of logits by it are far from infinite in fp32


@part_of("search")
class Sample(Ruled):
    """`y_t ~ p(v | y_<t)^(1 / temperature)`, of the tokens that all filters keep.

    The order is that of the released code of Holtzman et al. and of `transformers`; each filter
    sees the probabilities p that those before it left, normalised. The score is `sum_t log
    p(y_t | y_<t)` under the model itself. The t-th number of text c of prompt i is a function of
    (seed, i, c, t) alone, whatever else is in the batch.

    Args:
        temperature: The divisor of the logits.
        top_k: The likeliest tokens that are kept (Fan et al., 2018, arXiv:1805.04833, sec. 5.4).
        top_p: The fewest likeliest tokens whose shares reach it are kept.
        min_p: Tokens with p >= min_p max p are kept (Nguyen et al., 2024, arXiv:2407.01082, sec.
            3).
        typical_p: With the entropy H of p, the fewest tokens with the least |-log p - H| whose
            shares reach it are kept (Meister et al., 2023, arXiv:2202.00666, sec. 4).
        seed: The seed of the drawn numbers.
        count: The texts of a row, the likeliest first.
        rules: The settings of `Ruled`.
    """

    def __init__(
        self,
        *,
        temperature: float,
        top_k: int | None,
        top_p: float,
        seed: int,
        min_p: float = 0.0,
        typical_p: float = 1.0,
        count: int = 1,
        **rules: Unpack[RuleSettings],
    ) -> None:
        super().__init__(**rules)
        if temperature < COLDEST:
            fix = "search=greedy takes the likeliest token"
            raise ConfigError("search.temperature", temperature, f"{COLDEST:g} or more", fix=fix)
        if top_k is not None and top_k < 1:
            raise ConfigError("search.top_k", top_k, "1 or more, or null for all tokens")
        for name, share in (("top_p", top_p), ("typical_p", typical_p)):
            if not 0 < share <= 1:
                raise ConfigError(f"search.{name}", share, f"0 < {name} <= 1 (1: all tokens)")
        if not 0 <= min_p <= 1:
            raise ConfigError("search.min_p", min_p, "0 <= min_p <= 1 (0: all tokens)")
        if count < 1:
            raise ConfigError("search.count", count, "1 or more")
        if seed < 0:
            raise ConfigError("search.seed", seed, "0 or more")
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self.min_p, self.typical_p, self.seed, self.count = min_p, typical_p, seed, count

    @property
    def facts(self) -> SearchFacts:
        """Its settings, for a library that searches itself."""
        return SearchFacts(
            self,
            count=self.count,
            draws=True,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            typical_p=self.typical_p,
            seed=self.seed,
        )

    def __call__(self, step: DecodingStep, start: Start) -> list[list[Hypothesis]]:
        return walk(step, start, self)

    def draw_numbers(self, key: int, text: int, length: int) -> np.ndarray:
        # multiples of 2^-24, so that fp32 makes none a 1
        drawn = np.random.default_rng([self.seed, key, text]).random(length)
        return np.floor(drawn * (1 << 24)) / (1 << 24)

    def choose(self, scores: Tensor, numbers: Tensor) -> Tensor:
        return self.draw(scores, numbers)

    def draw(self, scores: Tensor, numbers: Tensor) -> Tensor:
        """[N] the token at which the running sum of probabilities, the largest first, passes
        `numbers [N]`.
        """
        kept = scores.shape[1] if self.top_k is None else min(self.top_k, scores.shape[1])
        if kept < scores.shape[1]:
            values, ids = scores.topk(kept)
        elif self.top_p < 1:
            values, ids = scores.sort(-1, descending=True)
        else:
            values, ids = scores, None
        p = torch.softmax(values / self.temperature, -1)
        sums = p.cumsum(-1)
        total = sums[:, -1:]
        if self.top_p < 1:  # a token is kept if those before it do not reach top_p
            last = (sums < self.top_p).sum(-1, keepdim=True).clamp(max=kept - 1)
            total = sums.gather(1, last)
            p = p.masked_fill(torch.arange(kept, device=p.device) > last, 0.0)
        if self.min_p > 0 or self.typical_p < 1:
            p = p.masked_fill(p < self.min_p * p.amax(-1, keepdim=True), 0.0)
            p = p if self.typical_p == 1 else keep_typical(p, self.typical_p)
            sums = p.cumsum(-1)
            total = sums[:, -1:]
        index = torch.searchsorted(sums, numbers[:, None] * total, right=True).clamp(max=kept - 1)
        return (index if ids is None else ids.gather(1, index))[:, 0]


def keep_typical(p: Tensor, share: float) -> Tensor:
    """`p [N, V]` of the most typical tokens whose shares reach `share`, 0 of the others."""
    p = p / p.sum(-1, keepdim=True)
    surprise = -p.log()  # inf where p is 0
    entropy = torch.special.entr(p).sum(-1, keepdim=True)
    distance = (surprise - entropy).abs()
    nearest, order = distance.sort(-1)
    reached = p.gather(1, order).cumsum(-1)
    last = (reached < share).sum(-1, keepdim=True).clamp(max=p.shape[1] - 1)
    return p.masked_fill(distance > nearest.gather(1, last), 0.0)
