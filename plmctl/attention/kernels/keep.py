"""Random masks for dropout on CPU, several times faster than torch's Bernoulli draws.

One draw from torch's global CPU generator seeds a fast stream, so saving and restoring that
generator repeats every mask. An element takes 16 bits: the rate is rounded to a multiple of
1/65536, and `keep_rate` is the exact probability. A mask is an integer of the element's own size,
-1 (all bits set) = kept and 0 = dropped, so that applying it is one bitwise AND.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

_LEVELS = 1 << 16
_INTEGER = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}


_shapes: list[None] = []  # how many `without_values` are open


@contextmanager
def without_values() -> Iterator[None]:
    """The time in which masks have a shape and a type alone, for passes of tensors that have no
    values.
    """
    _shapes.append(None)
    try:
        yield
    finally:
        _shapes.pop()


def keep_rate(rate: float) -> float:
    """The exact probability that an element is kept."""
    return 1.0 - round(rate * _LEVELS) / _LEVELS


def draw_mask(shape: torch.Size, rate: float) -> Tensor:
    """int16 of `shape`: -1 with probability `keep_rate(rate)`, else 0; of no values within
    `without_values`.
    """
    if _shapes:
        return torch.empty(shape, dtype=torch.int16)
    seed = int(torch.empty((), dtype=torch.int64).random_())
    count = shape.numel()
    words = (
        torch.from_numpy(np.random.SFC64(seed).random_raw(-(-count // 4)))
        .view(torch.int16)[:count]
        .view(shape)
    )
    first = round(rate * _LEVELS) - _LEVELS // 2  # the lowest word that is kept
    if first <= -_LEVELS // 2:
        return words.fill_(-1)
    return words.clamp_(first - 1, first).neg_().add_(first - 1)


def apply_mask(x: Tensor, keep: Tensor) -> Tensor:
    """`x` where `keep` is -1 and 0 where it is 0."""
    integer = _INTEGER[x.dtype]
    return torch.bitwise_and(x.view(integer), keep.to(integer)).view(x.dtype)
