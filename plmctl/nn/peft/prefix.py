"""Prefixes: keys and values that every token sees are learned in each layer (Li and Liang,
2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from plmctl.attention.kernels.dense import Before
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count
from plmctl.nn.cells.base import Prefixed
from plmctl.nn.peft.base import LONGEST, WIDEST, Method, check_size, find_cells
from plmctl.nn.starting import Starting


class LearnedPrefix(Starting):
    """Keys and values, [H, P, D] each, that are learned themselves: rows of `vectors` are all of
    the keys, then the values.
    """

    def __init__(self, *, num_heads: int, head_width: int, length: int, std: float) -> None:
        super().__init__()
        self.sizes, self.std = (num_heads, head_width), std
        self.vectors = nn.Parameter(torch.empty(length, 2 * num_heads * head_width))

    def start(self, generator: Generator) -> None:
        nn.init.normal_(self.vectors, std=self.std, generator=generator)

    def forward(self) -> Before:
        return _split(self.vectors, self.sizes)


class PrefixNetwork(Starting):
    """`W2 tanh(W1 e + b1) + b2` with e [P, W]: the keys and values of all layers, [P, rows]."""

    def __init__(self, *, width: int, length: int, inner: int, rows: int, std: float) -> None:
        super().__init__()
        self.std = std
        self.vectors = nn.Parameter(torch.empty(length, width))
        self.first, self.first_bias = _map(inner, width)
        self.second, self.second_bias = _map(rows, inner)

    def start(self, generator: Generator) -> None:
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=self.std, generator=generator)
            else:
                nn.init.zeros_(weight)

    def forward(self, rows: slice) -> Tensor:
        inner = torch.tanh(F.linear(self.vectors, self.first, self.first_bias))
        return F.linear(inner, self.second[rows], self.second_bias[rows])


class MadePrefix(nn.Module):
    """Keys and values of one layer, as the network of all layers makes them."""

    def __init__(self, network: PrefixNetwork, rows: slice, sizes: tuple[int, int]) -> None:
        super().__init__()
        self.rows, self.sizes = rows, sizes
        self._network = (network,)  # a part of the model, not of its layers

    def forward(self) -> Before:
        return _split(self._network[0](self.rows), self.sizes)


def _map(rows: int, columns: int) -> tuple[nn.Parameter, nn.Parameter]:
    return nn.Parameter(torch.empty(rows, columns)), nn.Parameter(torch.empty(rows))


def _split(made: Tensor, sizes: tuple[int, int]) -> Before:
    """[P, 2 H D] -> [H, P, D] each."""
    keys, values = made.unflatten(-1, (2, *sizes)).permute(1, 2, 0, 3)
    return Before(keys, values)


@part_of("peft")
class PrefixTuning(Method):
    """Attention reads [P_k; k] and [P_v; v], with P_k and P_v of its own in each layer (Li and
    Liang, 2021, arXiv:2101.00190, sec. 4.2; P-tuning v2: Liu et al., 2022, arXiv:2110.07602, sec.
    3.2).

    Its keys stand nowhere: positions neither turn them nor change their scores. It makes all scores
    at once, whatever the kernel. Differs: the network that makes them stays in the checkpoint
    (published: only its output is stored).

    Args:
        length: P, keys and values in each layer.
        inner_width: The inner width of the network that makes the keys and values of all layers in
            training (published for generation of text: 512, 800; sec. 4.3); None: they are learned
            themselves.
        std: The deviation of the first weights, normal.
        shift: tokens stand at positions from P on, as in the released code and in `peft`, where a
            prefix is a past.
    """

    mark = "prefix"

    def __init__(
        self,
        *,
        length: Count,
        inner_width: Count | None = None,
        std: Amount = 0.02,
        shift: bool = False,
    ) -> None:
        self.length, self.inner_width, self.std, self.shift = length, inner_width, std, shift
        self.places = length if shift else 0

    def add_to(self, model: nn.Module) -> None:
        found = (cell for cell in find_cells(model) if isinstance(cell, Prefixed))
        cells = [cell for cell in found if cell.facts.takes_prefix]
        if not cells:
            allowed = "for attention that reads all tokens by one softmax, which no cell here is"
            queries = any("query" in cell.projections().maps for cell in find_cells(model))
            fix = "peft=[lora]" if queries else "peft=[bitfit]"
            raise ConfigError("length", self.length, allowed, fix=fix)
        check_size("length", self.length, LONGEST, "a prefix that attention still reads fast")
        if self.inner_width is not None:
            most = WIDEST * cells[0].num_heads * cells[0].head_width
            why = f"{WIDEST} times the width of attention"
            check_size("inner_width", self.inner_width, most, why)
        if self.shift:
            self._shift(model)
        if self.inner_width is not None:
            self._add_network(model, cells, self.inner_width)
            return
        for cell in cells:
            sizes = {"num_heads": cell.num_heads, "head_width": cell.head_width}
            prefix = LearnedPrefix(**sizes, length=self.length, std=self.std)
            cell.take_prefix(prefix)

    def _add_network(self, model: nn.Module, cells: Sequence[Prefixed], inner: int) -> None:
        """One network for all cells: its rows are those of the first layer, of the second, ..."""
        sizes = [(cell.num_heads, cell.head_width) for cell in cells]
        stops = list(accumulate(2 * heads * width for heads, width in sizes))
        network = PrefixNetwork(
            width=sizes[0][0] * sizes[0][1],
            length=self.length,
            inner=inner,
            rows=stops[-1],
            std=self.std,
        )
        model.add_module(self.mark, network)
        for cell, begin, stop, own in zip(cells, [0, *stops], stops, sizes, strict=False):
            cell.take_prefix(MadePrefix(network, slice(begin, stop), own))

    def _shift(self, model: nn.Module) -> None:
        own: Any = model
        if getattr(model, "prompt_reader", None) is not model:
            allowed = "false: this model has no positions of one row of tokens"
            raise ConfigError("shift", True, allowed, fix="shift=false")
        own.offset = self.length

    def check_folding(self) -> None:
        raise self.refuse_folding(
            "keys and values that it puts before those of the tokens, which no weight of the model"
            " makes"
        )
