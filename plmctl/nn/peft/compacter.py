"""Compacter: adapters whose matrices are sums of Kronecker products, with factors that all adapters
share (Karimi Mahabadi et al., 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count, Whole
from plmctl.nn.cells.feedforward import find_activation
from plmctl.nn.peft.base import WIDEST, Added, Method, attach, check_size
from plmctl.nn.peft.bottleneck import choose_blocks
from plmctl.nn.starting import Starting


class SharedFactors(Starting):
    """A_1 ... A_n [n, n], of all matrices of all adapters."""

    def __init__(self, *, parts: int, std: float) -> None:
        super().__init__()
        self.std, self.weight = std, nn.Parameter(torch.empty(parts, parts, parts))

    def start(self, generator: Generator) -> None:
        nn.init.normal_(self.weight, std=self.std, generator=generator)


class KroneckerMap(Starting):
    """`x sum_i A_i (x) (s_i t_i) + b`, with (x) the Kronecker product, s_i [in / n, r] and t_i [r,
    out / n].
    """

    def __init__(self, *, factors: SharedFactors, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        parts = len(factors.weight)
        self.factors = factors
        self.left = nn.Parameter(torch.empty(parts, inputs // parts, rank))
        self.right = nn.Parameter(torch.empty(parts, rank, outputs // parts))
        self.bias = nn.Parameter(torch.empty(outputs))

    def start(self, generator: Generator) -> None:
        for matrix in (*self.left.unbind(), *self.right.unbind()):
            nn.init.xavier_uniform_(matrix, generator=generator)
        nn.init.zeros_(self.bias)

    def matrix(self) -> Tensor:
        """[in, out] the sum of the products."""
        inner = self.left @ self.right
        product = torch.einsum("ipq,iab->paqb", self.factors.weight.to(inner.dtype), inner)
        return product.reshape(-1, len(self.bias))

    def forward(self, x: Tensor) -> Tensor:
        mapped: Tensor = x @ self.matrix().to(x.dtype) + self.bias.to(x.dtype)
        return mapped


class CompacterChange(Added):
    """`y + up(activation(down(y)))`."""

    def __init__(self, *, down: KroneckerMap, up: KroneckerMap, activation: str) -> None:
        super().__init__()
        self.down, self.up, self.activation = down, up, find_activation(activation)

    def start(self, generator: Generator) -> None:
        """Each map begins by itself."""

    def change(self, x: Any, y: Tensor) -> Tensor:
        changed: Tensor = y + self.up(self.activation(self.down(y)))
        return changed


@part_of("peft")
class Compacter(Method):
    """`y + up(activation(down(y)))` on the result y of a cell, both maps `sum_i A_i (x) (s_i t_i)`
    with A_i that all maps share (Karimi Mahabadi et al., 2021, arXiv:2106.04647, sec. 3 and 4).

    Args:
        cells: The cells that have an adapter, by kind: attention, feed-forward. Compacter++ has
            one behind feed-forward cells alone.
        inner_width: Columns inside.
        activation: between its maps.
        parts: n, the number of products in a sum, which divides both widths.
        rank: Columns of s_i.
        std: The deviation of the first A_i, normal.
        skip: The number of the lowest layers without an adapter (Rueckle et al., 2021,
            arXiv:2010.11918, sec. 3).
    """

    mark = "compacter"

    def __init__(
        self,
        *,
        cells: Sequence[str],
        inner_width: Count,
        activation: str,
        parts: Count = 4,
        rank: Count = 1,
        std: Amount = 1e-4,
        skip: Whole = 0,
    ) -> None:
        find_activation(activation)
        self.cells, self.inner_width, self.activation = tuple(cells), inner_width, activation
        self.parts, self.rank, self.std, self.skip = parts, rank, std, skip

    def add_to(self, model: nn.Module) -> None:
        blocks = choose_blocks(model, self.cells, skip=self.skip)
        width = blocks[0].cell.columns()
        most = WIDEST * width // self.parts * self.parts
        check_size("inner_width", self.inner_width, most, f"{WIDEST} times the cell's width")
        if width % self.parts:
            allowed = f"a number that divides the width {width} of the cell"
            raise ConfigError("parts", self.parts, allowed, fix="parts=2")
        if self.inner_width % self.parts:
            allowed = f"a multiple of parts={self.parts}"
            fix = f"inner_width={-(-self.inner_width // self.parts) * self.parts}"
            raise ConfigError("inner_width", self.inner_width, allowed, fix=fix)
        narrow = min(self.inner_width, width) // self.parts
        check_size("rank", self.rank, narrow, "the rank of a factor itself")
        factors = SharedFactors(parts=self.parts, std=self.std)
        for block in blocks:
            down, up = (
                KroneckerMap(factors=factors, inputs=first, outputs=last, rank=self.rank)
                for first, last in ((width, self.inner_width), (self.inner_width, width))
            )
            change = CompacterChange(down=down, up=up, activation=self.activation)
            attach(block.cell, self.mark, change)

    def check_folding(self) -> None:
        raise self.refuse_folding("a network of its own, not a change of a matrix of the model")
