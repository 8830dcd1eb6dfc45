"""Axial position embeddings (Kitaev et al., 2020: Reformer; Ho et al., 2019, arXiv:1912.12180)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.dropout import Dropout
from plmctl.nn.positions import Position


@part_of("position")
class Axial(Position):
    """`x + [T_1[p // n_2] | T_2[p % n_2]]`: positions are the cells of a grid, and each of its axes
    has a table for a part of the columns of x.

    n_1 n_2 positions need n_1 d_1 + n_2 d_2 numbers, d_1 + d_2 = W; there may be more than two
    axes.

    Args:
        shape: Sizes of the axes, the last one first to change along a row; null: two, nearly equal,
            for `max_length`.
        widths: Columns of each axis, in all W; null: equal ones.
        dropout: The rate at which, in training, all positions of a row of text that are equal on
            the last axis lose their embeddings together.

    (arXiv:2001.04451, sec. 4 and the released code: google/trax, layers/research/
    position_encodings.py, AxialPositionalEncoding; dropout as in transformers.) Differs: a row need
    not fill the grid.
    """

    def __init__(
        self,
        *,
        width: int,
        max_length: int,
        shape: list[Count] | None = None,
        widths: list[Count] | None = None,
        dropout: DropoutRate = 0.0,
    ) -> None:
        super().__init__()
        self.shape = _cover(max_length) if shape is None else list(shape)
        widths = _divide(width, len(self.shape)) if widths is None else widths
        if math.prod(self.shape) < max_length:
            allowed = f"sizes whose product is at least {max_length}, the longest row"
            fix = f"position.shape={_spell(_cover(max_length))}"
            raise ConfigError("shape", shape, allowed, fix=fix)
        if len(widths) != len(self.shape) or sum(widths) != width or min(widths) < 1:
            allowed = f"{len(self.shape)} numbers, one for each axis, whose sum is {width}"
            fix = f"position.widths={_spell(_divide(width, len(self.shape)))}"
            raise ConfigError("widths", list(widths), allowed, fix=fix)
        self.max_length = math.prod(self.shape)
        sizes = zip(self.shape, widths, strict=True)
        self.tables = nn.ModuleList([nn.Embedding(*size) for size in sizes])
        self.dropout = Dropout(rate=dropout)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        if x.shape[1] > math.prod(self.shape):
            allowed = f"at most {math.prod(self.shape)}, the cells of position.shape={self.shape}"
            raise ConfigError("format.max_length", x.shape[1], allowed)
        step, parts = math.prod(self.shape), []
        for size, table in zip(self.shape, self.tables, strict=True):
            step //= size
            parts.append(table(positions // step % size))
        vectors = torch.cat(parts, -1)
        if self.training and self.dropout.rate:
            last = self.shape[-1]
            kept = self.dropout(x.new_ones(x.shape[0], last))  # 0, or 1 / (1 - rate)
            vectors = vectors * kept.gather(1, (positions % last).expand(x.shape[0], -1))[..., None]
        return x + vectors


def _cover(length: int) -> list[int]:
    """Two sizes, nearly equal, whose product is at least `length`."""
    last = math.isqrt(max(0, length - 1)) + 1
    return [-(-length // last), last]


def _divide(width: int, count: int) -> list[int]:
    """`width` as a sum of `count` nearly equal numbers."""
    return [(width * (n + 1)) // count - width * n // count for n in range(count)]


def _spell(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"
