"""Greedy search: always the likeliest token."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.generation.search import DecodingStep, Hypothesis, Ruled, SearchFacts, Start
from plmctl.generation.walk import walk

_CHUNK = 64  # values that `find_best` takes the maximum of first


@part_of("search")
class Greedy(Ruled):
    """`y_t = argmax_v p(v | y_<t)`; the score is `sum_t log p(y_t | y_<t)`. Among equals, the
    lowest id.
    """

    count = 1

    @property
    def facts(self) -> SearchFacts:
        """Its settings, for a library that searches itself."""
        return SearchFacts(self)

    def __call__(self, step: DecodingStep, start: Start) -> list[list[Hypothesis]]:
        return walk(step, start, self)

    def draw_numbers(self, key: int, text: int, length: int) -> np.ndarray:
        return np.zeros(0)

    def choose(self, scores: Tensor, numbers: Tensor) -> Tensor:
        return find_best(scores)


def find_best(values: Tensor) -> Tensor:
    """`values.argmax(-1)` of [N, V]: with several rows, first the chunk of the maximum, and then
    its number in that chunk. The kernel of torch takes several times as long.
    """
    rows, size = values.shape
    whole = size // _CHUNK * _CHUNK
    if rows == 1 or whole < _CHUNK**2:
        return values.argmax(-1)
    chunks = values[:, :whole].unflatten(1, (-1, _CHUNK))
    tops = chunks.amax(-1)
    top, chunk = tops.amax(-1), tops.argmax(-1)
    place = chunks[torch.arange(rows, device=values.device), chunk].argmax(-1) + _CHUNK * chunk
    if whole == size:
        return place
    rest, last = values[:, whole:].max(-1)
    return torch.where(rest > top, last + whole, place)
