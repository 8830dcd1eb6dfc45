"""Greedy search: always the likeliest token."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.generation.search import DecodingStep, Hypothesis, Rules, SearchFacts, Start
from plmctl.generation.walk import walk


@part_of("search")
class Greedy:
    """`y_t = argmax_v p(v | y_<t)`; the score is `sum_t log p(y_t | y_<t)`. Among equals, the
    lowest id.
    """

    count = 1

    def __init__(
        self, *, min_length: int = 0, no_repeat_ngram: int = 0, first: int | None = None
    ) -> None:
        self.rules = Rules(min_length=min_length, no_repeat_ngram=no_repeat_ngram, first=first)
        self.fits = self.rules.fits

    @property
    def facts(self) -> SearchFacts:
        """Its settings, for a library that searches itself."""
        return SearchFacts(self.rules)

    def __call__(self, step: DecodingStep, start: Start) -> list[list[Hypothesis]]:
        return walk(step, start, self)

    def draw_numbers(self, key: int, text: int, length: int) -> np.ndarray:
        return np.zeros(0)

    def choose(self, logp: Tensor, numbers: Tensor) -> Tensor:
        return logp.argmax(-1)
