"""IA3: learned factors of keys, values and inner states (Liu et al., 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Generator, Tensor, nn

from plmctl.core.parts import part_of
from plmctl.nn.cells.base import LinearRows
from plmctl.nn.peft.base import Added, Method, attach, find_maps


class Scaled(Added):
    """`l * y` on some rows of a linear map's result; with `before`, on the input of the map."""

    def __init__(self, maps: Mapping[str, LinearRows], *, before: bool) -> None:
        super().__init__()
        linear = next(iter(maps.values())).linear
        self.before, self.rows = before, {name: part.rows for name, part in maps.items()}
        self.factors = nn.ParameterDict()
        for name, rows in self.rows.items():
            size = linear.in_features if before else rows.stop - rows.start
            self.factors[name] = nn.Parameter(torch.empty(size))

    def start(self, generator: Generator) -> None:
        for factor in self.factors.values():
            nn.init.ones_(factor)

    def change_input(self, x: Tensor) -> Tensor:
        if not self.before:
            return x
        for factor in self.factors.values():
            x = x * factor.to(x.dtype)
        return x

    def change(self, x: Tensor, y: Tensor) -> Tensor:
        return y if self.before else y * self._spread(y)

    @torch.no_grad()
    def fold_result(self, owner: nn.Module) -> None:
        weight: Tensor = owner.weight  # type: ignore[assignment]
        if not self.before:
            weight.mul_(self._spread(weight[:, 0])[:, None])
            if isinstance(bias := owner.bias, Tensor):
                bias.mul_(self._spread(bias))

    @torch.no_grad()
    def fold_input(self, owner: nn.Module) -> None:
        weight: Tensor = owner.weight  # type: ignore[assignment]
        for factor in self.factors.values() if self.before else ():
            weight.mul_(factor)

    def _spread(self, y: Tensor) -> Tensor:
        """[rows] the factors of all rows, 1 for rows without one."""
        parts: list[Tensor] = []
        place = 0
        for name, rows in sorted(self.rows.items(), key=lambda item: item[1].start):
            parts += [y.new_ones(rows.start - place), self.factors[name].to(y.dtype)]
            place = rows.stop
        return torch.cat([*parts, y.new_ones(y.shape[-1] - place)])


@part_of("peft")
class LearnedScales(Method):
    """`l_k * k`, `l_v * v` and `l_ff * a`, a what the last map of a feed-forward cell reads; 1 at
    first (Liu et al., 2022, arXiv:2205.05638, sec. 3.3).

    Args:
        maps: The maps whose results are scaled: key, value.
        inputs: The maps whose inputs are scaled: down.
    """

    mark = "ia3"

    def __init__(self, *, maps: Sequence[str], inputs: Sequence[str]) -> None:
        self.maps, self.inputs = tuple(maps), tuple(inputs)

    def add_to(self, model: nn.Module) -> None:
        chosen = (("maps", self.maps, False), ("inputs", self.inputs, True))
        for path, names, before in chosen:
            for maps in find_maps(model, names, "ia3", path) if names else ():
                linear = next(iter(maps.values())).linear
                attach(linear, self.mark, Scaled(maps, before=before))
