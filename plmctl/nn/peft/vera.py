"""VeRA: random matrices that all maps share, and learned vectors that scale them (Kopiczko et al.,
2024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count, DropoutRate, Whole
from plmctl.nn.cells.base import LinearRows
from plmctl.nn.peft.base import WIDEST, Method, attach, check_size, find_maps
from plmctl.nn.peft.product import ProductChange


class RandomMatrices(nn.Module):
    """A [r, in] and B [rows, r], which stay as they are drawn; a map takes the first columns of A
    and the first rows of B.

    They follow from the seed, so they are not saved.
    """

    def __init__(self, *, rank: int, inputs: int, outputs: int, seed: int) -> None:
        super().__init__()
        self.shapes, self.seed = ((rank, inputs), (outputs, rank)), seed
        meta = torch.empty(0).is_meta
        down, up = (torch.empty(shape) for shape in self.shapes) if meta else self.draw()
        self.register_buffer("down", down, persistent=False)
        self.register_buffer("up", up, persistent=False)

    def draw(self) -> tuple[Tensor, Tensor]:
        """A and B, uniform in `+-sqrt(6 / columns)` (He et al., 2015)."""
        generator = Generator().manual_seed(self.seed)
        down, up = (torch.empty(shape, device="cpu") for shape in self.shapes)
        for matrix in (down, up):
            nn.init.kaiming_uniform_(matrix, generator=generator)
        return down, up


class VectorChange(ProductChange):
    """`y + b * B (d * (A dropout(x)))` with learned d [r] and b [rows]."""

    def __init__(
        self,
        maps: Mapping[str, LinearRows],
        *,
        matrices: RandomMatrices,
        first: float,
        dropout: float,
    ) -> None:
        super().__init__(maps, scale=1.0, dropout=dropout)
        self.matrices, self.first = matrices, first
        self.inputs = next(iter(maps.values())).linear.in_features
        rank = matrices.shapes[0][0]
        self.inner, self.outer = nn.ParameterDict(), nn.ParameterDict()
        for name, rows in self.rows.items():
            self.inner[name] = nn.Parameter(torch.empty(rank))
            self.outer[name] = nn.Parameter(torch.empty(rows.stop - rows.start))

    def start(self, generator: Generator) -> None:
        for name, inner in self.inner.items():
            nn.init.constant_(inner, self.first)
            nn.init.zeros_(self.outer[name])

    def factors(self, name: str) -> tuple[Tensor, Tensor]:
        down, up = self._cut(name)
        return self.inner[name][:, None] * down, self.outer[name][:, None] * up

    def read(self, name: str, x: Tensor) -> Tensor:
        down, up = self._cut(name)  # they have no gradient, so the vectors act on states
        inner = F.linear(self.dropout(x), down)
        outer = F.linear(self.inner[name].to(inner.dtype) * inner, up)
        return self.outer[name].to(outer.dtype) * outer

    def _cut(self, name: str) -> tuple[Tensor, Tensor]:
        """A [r, in] and B [rows, r] of this map."""
        rows = len(self.outer[name])
        return self.matrices.down[:, : self.inputs], self.matrices.up[:rows]  # type: ignore[index]


@part_of("peft")
class SharedRandom(Method):
    """`W x + b * B (d * (A x))` instead of `W x`: A and B are random, fixed, and the same for all
    maps; d and b are learned, b = 0 at first (Kopiczko et al., 2024, arXiv:2310.11454, sec. 3.1).

    Maps of several sizes take the first columns of A and the first rows of B (sec. 3.2).

    Args:
        maps: The outputs of the chosen maps: query, key, value, output, up, gate, down.
        rank: The number of rows of A.
        first: The first value of all d.
        seed: The seed of A and B.
        dropout: The rate of dropout on the input of A.
    """

    mark = "vera"

    def __init__(
        self,
        *,
        maps: Sequence[str],
        rank: Count,
        first: Amount = 0.1,
        seed: Whole = 0,
        dropout: DropoutRate = 0.0,
    ) -> None:
        self.maps, self.rank, self.first = tuple(maps), rank, first
        self.seed, self.dropout = seed, dropout

    def add_to(self, model: nn.Module) -> None:
        found = find_maps(model, self.maps, self.mark, "maps")
        matrices = self.draw_for([part for maps in found for part in maps.values()])
        settings = {"matrices": matrices, "first": self.first, "dropout": self.dropout}
        for maps in found:
            change = VectorChange(maps, **settings)  # type: ignore[arg-type]
            attach(next(iter(maps.values())).linear, self.mark, change)

    def draw_for(self, maps: Sequence[LinearRows]) -> RandomMatrices:
        """The matrices of these maps.

        Raises:
            ConfigError: The rank exceeds every width by far.
        """
        inputs = max(part.linear.in_features for part in maps)
        outputs = max(part.rows.stop - part.rows.start for part in maps)
        most = WIDEST * max(inputs, outputs)
        check_size("rank", self.rank, most, f"{WIDEST} times the width of the widest map")
        return RandomMatrices(rank=self.rank, inputs=inputs, outputs=outputs, seed=self.seed)
