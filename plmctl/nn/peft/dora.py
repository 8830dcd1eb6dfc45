"""DoRA: lengths and directions of the rows of a weight are learned apart (Liu et al., 2024)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Generator, Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.nn.cells.base import LinearRows
from plmctl.nn.peft.base import Added, find_maps
from plmctl.nn.peft.lora import LowRank, start_matrices
from plmctl.nn.peft.product import ProductChange, make_matrices
from plmctl.nn.starting import FitsIn


class DirectionChange(ProductChange, FitsIn):
    """`m (W x + s B A dropout(x)) / |W + s B A| + b`, with a learned m and a norm of each row."""

    def __init__(
        self, maps: Mapping[str, LinearRows], *, rank: int, scale: float, dropout: float
    ) -> None:
        super().__init__(maps, scale=scale, dropout=dropout)
        self._linear: tuple[nn.Linear, ...] = (next(iter(maps.values())).linear,)  # no part of this
        self.down, self.up = make_matrices(maps, rank)
        self.magnitude = nn.ParameterDict(
            {name: nn.Parameter(torch.empty(len(up))) for name, up in self.up.items()}
        )

    def start(self, generator: Generator) -> None:
        start_matrices(self.down, self.up, generator)
        self.fit_in()

    @torch.no_grad()
    def fit_in(self) -> None:
        """Set m to the norms of the weight, with which nothing is changed."""
        for name, magnitude in self.magnitude.items():
            magnitude.copy_(self._measure(name))

    def factors(self, name: str) -> tuple[Tensor, Tensor]:
        return self.down[name], self.up[name]

    def change_rows(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        gain, bias = self._find_gain(name)
        plain = y if bias is None else y - bias
        # as a sum with y, which is exact where the gain is 1
        return (y + (gain - 1) * plain + gain * self.read(name, x)).to(y.dtype)

    def fold_rows(self, name: str, weight: Tensor) -> Tensor:
        turned = weight + self.product(name)
        return self.magnitude[name].double()[:, None] * turned / turned.norm(dim=1, keepdim=True)

    def settle(self) -> None:
        for name in self.magnitude if self._linear else ():
            gain, bias = self._find_gain(name)
            self.register_buffer(f"gain_{name}", gain.detach())
            self.register_buffer(f"bias_{name}", None if bias is None else bias.detach())
        self._linear = ()

    def _find_gain(self, name: str) -> tuple[Tensor, Tensor | None]:
        """[rows] `m / |W + s B A|`, and the bias of these rows."""
        if not self._linear:
            return getattr(self, f"gain_{name}"), getattr(self, f"bias_{name}")
        (linear,) = self._linear
        bias = None if linear.bias is None else linear.bias[self.rows[name]]
        return self.magnitude[name] / self._measure(name), bias

    @torch.no_grad()
    def _measure(self, name: str) -> Tensor:
        """[rows] `|W + s B A|`, a constant for the gradient (sec. 4.3)."""
        (linear,) = self._linear
        weight, (down, up) = linear.weight[self.rows[name]], self.factors(name)
        with torch.autocast(weight.device.type, enabled=False):
            return torch.addmm(weight, up, down, alpha=self.scale).norm(dim=1)


@part_of("peft")
class WeightDecomposed(LowRank):
    """`m (W + (alpha / r) B A) / |W + (alpha / r) B A|` instead of W, with a norm for each row of
    W; m begins as that norm, B as 0 (Liu et al., 2024, arXiv:2402.09353, sec. 4.1).

    The norm is a constant in the gradient (sec. 4.3). Differs: where dropout is not 0, `W x` reads
    all of x; in the library `peft`, it reads what dropout leaves.

    Args:
        maps: The outputs of the chosen maps: query, key, value, output, up, gate, down.
        rank: r.
        alpha: The numerator of the factor.
        root: the factor is alpha / sqrt(r) (Kalajdzievski, 2023, arXiv:2312.03732).
        dropout: The rate of dropout on the input of A.
    """

    mark = "dora"
    change = DirectionChange

    def add_to(self, model: nn.Module) -> None:
        for maps in find_maps(model, self.maps, self.mark, "maps"):
            parts = next(iter(maps.values())).linear._modules.items()
            if before := [mark for mark, part in parts if isinstance(part, Added)]:
                allowed = (
                    f"before {', '.join(before)}: it measures weights that nothing has changed"
                )
                raise ConfigError("peft", self.mark, allowed, fix="name it first in peft=[...]")
        super().add_to(model)
