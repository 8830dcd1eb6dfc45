"""Adapters: a narrow network behind a cell, or in parallel to it (Houlsby et al., 2019)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count, Number, Whole
from plmctl.nn.cells.feedforward import find_activation
from plmctl.nn.peft.base import (
    WIDEST,
    Added,
    Method,
    attach,
    check_kinds,
    check_size,
    find_blocks,
    find_low_blocks,
)
from plmctl.nn.residual import Block


class BottleneckChange(Added):
    """`y + s up(activation(down(z)))` with z = y; in `parallel`, z = x, what the cell reads; with a
    `norm` of the model, z = norm(x + y).
    """

    def __init__(
        self,
        *,
        width: int,
        inner: int,
        activation: str,
        parallel: bool,
        scale: float,
        std: float | None,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self._norm = (norm,)  # a part of the model, not of the adapter
        self.activation, self.parallel = find_activation(activation), parallel
        self.scale, self.std = scale, std
        self.down = nn.Parameter(torch.empty(inner, width))
        self.down_bias = nn.Parameter(torch.empty(inner))
        self.up = nn.Parameter(torch.empty(width, inner))
        self.up_bias = nn.Parameter(torch.empty(width))

    def start(self, generator: Generator) -> None:
        for bias in (self.down_bias, self.up_bias):
            nn.init.zeros_(bias)
        if self.std is None:
            nn.init.kaiming_uniform_(self.down, a=math.sqrt(5), generator=generator)
            nn.init.zeros_(self.up)
            return
        for weight in (self.down, self.up):
            limit = 2 * self.std
            nn.init.trunc_normal_(weight, std=self.std, a=-limit, b=limit, generator=generator)

    def change(self, x: Any, y: Tensor) -> Tensor:
        return y + self.add(x, y)

    def add(self, x: Any, y: Tensor) -> Tensor:
        """[B, T, W] what it adds to y."""
        read = self.find_read(x, y)
        inner = self.activation(F.linear(read, self.down, self.down_bias))
        return self.scale * F.linear(inner, self.up, self.up_bias)

    def find_read(self, x: Any, y: Tensor) -> Tensor:
        return x["text"] if self.parallel else self.ask(x, y)

    def ask(self, x: Any, y: Tensor) -> Tensor:
        """[B, T, W] y, or norm(x + y)."""
        (norm,) = self._norm
        if norm is None:
            return y
        normed: Tensor = norm(x["text"] + y)
        return normed

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Go to another device or type together with the norm, which may be that of a model which
        this adapter has left.
        """
        for norm in self._norm:
            if norm is not None:
                norm._apply(fn, recurse)
        return super()._apply(fn, recurse)


def choose_blocks(model: nn.Module, cells: Sequence[str], *, skip: int = 0) -> list[Block]:
    """The blocks of the cells that have an adapter.

    Args:
        cells: Kinds of cells: attention, feed-forward.
        skip: The number of the lowest layers of each stack without one.

    Raises:
        ConfigError: No cell of the model computes what a name says, or none is left.
    """
    found = [block for block in find_blocks(model) if block.cell.facts.writes == "text"]
    check_kinds(cells, [block.cell for block in found])
    low = find_low_blocks(model, skip)
    chosen = [b for b in found if b.cell.facts.computes in cells and id(b) not in low]
    if not chosen:
        allowed = "less than the number of layers that have weights of their own"
        raise ConfigError("skip", skip, allowed, fix="skip=0")
    return chosen


@part_of("peft")
class Bottleneck(Method):
    """`y + up(activation(down(y)))` on the result y of a cell, before it is added to the stream
    (Houlsby et al., 2019, arXiv:1902.00751, sec. 2.1).

    Behind the feed-forward cell alone, and `normed`, it is the adapter of Pfeiffer et al. (2021,
    arXiv:2005.00247, sec. 3.1; released code). In parallel to it (`parallel`), with a factor, it is
    that of He et al. (2022, arXiv:2110.04366, sec. 4.6). Differs: dropout of the residual
    connection comes after it, not before.

    Args:
        cells: The cells that have an adapter, by kind: attention, feed-forward.
        inner_width: m, columns inside.
        activation: between its maps.
        parallel: reads what the cell reads, not its result.
        scale: The factor s of the adapter's result.
        std: The deviation of both matrices at first, normal and cut off at two deviations; None:
            `up` is 0.
        norms: the norms of the model are trained, too.
        normed: reads norm(x + y), with x what the cell reads and the norm behind the sum; y where
            no norm stands there (pre-norm).
        skip: The number of the lowest layers without an adapter (AdapterDrop: Rueckle et al., 2021,
            arXiv:2010.11918, sec. 3). They need no gradient.
    """

    mark = "adapter"

    def __init__(
        self,
        *,
        cells: Sequence[str],
        inner_width: Count,
        activation: str,
        parallel: bool = False,
        scale: Amount = 1.0,
        std: Number | None = 1e-3,
        norms: bool = False,
        normed: bool = False,
        skip: Whole = 0,
    ) -> None:
        find_activation(activation)
        if parallel and normed:
            allowed = "false: with parallel=true it reads what the cell reads"
            raise ConfigError("normed", normed, allowed, fix="parallel=false")
        self.cells, self.norms, self.normed = tuple(cells), norms, normed
        self.skip = skip
        self.settings: dict[str, Any] = {
            "inner": inner_width,
            "activation": activation,
            "parallel": parallel,
            "scale": scale,
            "std": std,
        }

    def add_to(self, model: nn.Module) -> None:
        for block in self.choose_blocks(model):
            attach(block.cell, self.mark, self.make(block))

    def choose_blocks(self, model: nn.Module) -> list[Block]:
        """The blocks of the cells that have one."""
        return choose_blocks(model, self.cells, skip=self.skip)

    def make(self, block: Block) -> BottleneckChange:
        """The adapter of a cell."""
        follows = self.normed and not isinstance(block.norm_sum, nn.Identity)
        norm = block.norm_sum if follows and block.columns is None else None
        width = block.cell.columns()
        most = WIDEST * width
        check_size("inner_width", self.settings["inner"], most, f"{WIDEST} times the cell's width")
        return BottleneckChange(width=width, norm=norm, **self.settings)

    def trains(self, model: nn.Module) -> list[str]:
        own = super().trains(model)
        if not self.norms:
            return own
        return own + [
            f"{name}.{inner}"
            for name, part in model.named_modules()
            if isinstance(part, nn.LayerNorm | nn.RMSNorm)
            for inner, _ in part.named_parameters(recurse=False)
        ]

    def check_folding(self) -> None:
        raise self.refuse_folding("a network of its own, not a change of a matrix of the model")
