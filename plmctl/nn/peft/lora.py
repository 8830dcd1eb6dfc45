"""LoRA: what a linear map learns is a product of two narrow ones (Hu et al., 2022)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

from torch import Generator, Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count, DropoutRate
from plmctl.nn.cells.base import LinearRows
from plmctl.nn.peft.base import Method
from plmctl.nn.peft.product import ProductChange, attach_products, make_matrices


class LowRankChange(ProductChange):
    """The matrices themselves are learned: `down` has A, `up` has B."""

    def __init__(
        self, maps: Mapping[str, LinearRows], *, rank: int, scale: float, dropout: float
    ) -> None:
        super().__init__(maps, scale=scale, dropout=dropout)
        self.down, self.up = make_matrices(maps, rank)

    def start(self, generator: Generator) -> None:
        start_matrices(self.down, self.up, generator)

    def factors(self, name: str) -> tuple[Tensor, Tensor]:
        return self.down[name], self.up[name]


def start_matrices(down: nn.ParameterDict, up: nn.ParameterDict, generator: Generator) -> None:
    """Draw A, and set B to 0, so that their product is 0 at first."""
    for name, matrix in down.items():
        # U(-1/sqrt(in), 1/sqrt(in)), as torch begins linear maps (microsoft/LoRA, layers.py)
        nn.init.kaiming_uniform_(matrix, a=math.sqrt(5), generator=generator)
        nn.init.zeros_(up[name])


@part_of("peft")
class LowRank(Method):
    """`W x + (alpha / r) B A x` instead of `W x`, W fixed, B = 0 at first (Hu et al., 2022,
    arXiv:2106.09685, sec. 4.1).

    Args:
        maps: The outputs of the chosen maps: query, key, value, output, up, gate, down.
        rank: r.
        alpha: The numerator of the factor.
        root: the factor is alpha / sqrt(r) (Kalajdzievski, 2023, arXiv:2312.03732).
        dropout: The rate of dropout on the input of A.
    """

    mark = "lora"
    change: ClassVar[Callable[..., ProductChange]] = LowRankChange

    def __init__(
        self,
        *,
        maps: Sequence[str],
        rank: Count,
        alpha: Amount,
        root: bool = False,
        dropout: DropoutRate = 0.0,
    ) -> None:
        self.maps, self.rank, self.dropout = tuple(maps), rank, dropout
        self.alpha, self.root = alpha, root
        self.scale = alpha / (math.sqrt(rank) if root else rank)

    def add_to(self, model: nn.Module) -> None:
        make = partial(self.change, rank=self.rank, scale=self.scale, dropout=self.dropout)
        attach_products(model, self.maps, self.mark, rank=self.rank, make=make)
