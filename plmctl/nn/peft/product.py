"""Changes of linear maps that are products of two narrow matrices, whatever makes the matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.nn.cells.base import LinearRows
from plmctl.nn.dropout import Dropout
from plmctl.nn.peft.base import Added, attach, check_size, find_maps


class ProductChange(Added):
    """`y + s B A dropout(x)` on some rows of a linear map, A [r, in] and B [rows, r] by `factors`.

    Where one map gives several things, such as queries and values, each has matrices of its own.
    """

    def __init__(self, maps: Mapping[str, LinearRows], *, scale: float, dropout: float) -> None:
        super().__init__()
        self.scale, self.rows = scale, {name: part.rows for name, part in maps.items()}
        self.dropout = Dropout(rate=dropout)

    def factors(self, name: str) -> tuple[Tensor, Tensor]:
        """A and B of the rows of this name."""
        raise NotImplementedError(type(self).__name__)

    def product(self, name: str) -> Tensor:
        """[rows, in] `s B A`, in float64: a fold rounds once."""
        down, up = self.factors(name)
        return self.scale * up.double() @ down.double()

    def read(self, name: str, x: Tensor) -> Tensor:
        """`s B A dropout(x)`."""
        down, up = self.factors(name)
        return self.scale * F.linear(F.linear(self.dropout(x), down), up)

    def change_rows(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """The new result of the rows of this name, whose result is `y`."""
        return y + self.read(name, x)

    def fold_rows(self, name: str, weight: Tensor) -> Tensor:
        """[rows, in] the new weight of these rows, in float64."""
        return weight + self.product(name)

    def change(self, x: Tensor, y: Tensor) -> Tensor:
        parts: list[Tensor] = []
        place = 0
        for name, rows in sorted(self.rows.items(), key=lambda item: item[1].start):
            parts += [y[..., place : rows.start], self.change_rows(name, x, y[..., rows])]
            place = rows.stop
        return torch.cat([*parts, y[..., place:]], -1)

    @torch.no_grad()
    def fold_result(self, owner: nn.Module) -> None:
        weight: Tensor = owner.weight  # type: ignore[assignment]
        for name, rows in self.rows.items():
            weight[rows] = self.fold_rows(name, weight[rows].double()).to(weight.dtype)


def make_matrices(
    maps: Mapping[str, LinearRows], rank: int
) -> tuple[nn.ParameterDict, nn.ParameterDict]:
    """A [r, in] and B [rows, r] of each name, without values."""
    down, up = nn.ParameterDict(), nn.ParameterDict()
    for name, part in maps.items():
        down[name] = nn.Parameter(torch.empty(rank, part.linear.in_features))
        up[name] = nn.Parameter(torch.empty(part.rows.stop - part.rows.start, rank))
    return down, up


def attach_products(
    model: nn.Module,
    names: Sequence[str],
    mark: str,
    *,
    rank: int,
    make: Callable[[Mapping[str, LinearRows]], Added],
) -> None:
    """Attach what `make` gives to each linear map of a model that gives one of `names`.

    Raises:
        ConfigError: No map gives some name, or the rank exceeds that of a map.
    """
    for maps in find_maps(model, names, mark, "maps"):
        linear = next(iter(maps.values())).linear
        for name, part in maps.items():
            most = min(linear.in_features, part.rows.stop - part.rows.start)
            check_size("rank", rank, most, f"the rank of the map '{name}' itself")
        attach(linear, mark, make(maps))
