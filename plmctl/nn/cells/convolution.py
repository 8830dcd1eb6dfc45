"""Convolutional cells: gated ones that replace attention (Gehring et al., 2017, arXiv:1705.03122,
sec. 3.1 and 3.2); depthwise ones, plain or separable, that are added to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work
from plmctl.nn.cells.feedforward import Activation, find_activation
from plmctl.nn.env import Env, Streams
from plmctl.nn.window import TokenWindow


class Windowed(Cell):
    """A cell that reads only a window of `kernel` tokens around each token of the row.

    `causal`: the window ends at the token; otherwise the token stands in its middle. Beyond the
    ends of a document are zeros. `dilation`: the distance of the tokens of the window.
    """

    facts = CellFacts(computes="convolution")

    def __init__(
        self, *, kernel: int, causal: bool, outputs: int | None = None, dilation: int = 1
    ) -> None:
        super().__init__()
        self.window = TokenWindow(dilation * (kernel - 1) + 1, causal)
        self.kernel, self.reach, self.dilation = kernel, self.window.reach, dilation
        self.facts = replace(
            self.facts, ahead=not causal, offsets=self.window.offsets(), outputs=outputs
        )

    def mix(self, taps: list[Tensor]) -> Tensor:
        """[B, T, W] from the `kernel` tokens around each, [B, T, W] each, the earliest first."""
        raise NotImplementedError(type(self).__name__)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x, documents = self.window.surround(streams["text"], env.documents, env.slot)
        return self.mix(self.window.taps(x, documents)[:: self.dilation])


@part_of("cells")
class Convolution(Windowed):
    """`out(a * sigmoid(b))`, [a_t; b_t] = b + sum_j W_j x_(t + j - reach), j = 0 .. kernel - 1: a
    gated window of tokens.

    [B, T, W] -> [B, T, W] through `hidden_width` channels. `causal`: the window ends at t, reach =
    kernel - 1; otherwise t stands in its middle. The columns of `taps.weight [2 hidden_width,
    kernel W]` are those of W_0, then W_1, ... Differs: the map `out`, and the width of the window's
    channels. The norms and residual sums of the stack replace the paper's weight normalisation and
    its factor sqrt(1/2).
    """

    projected_by = "out"

    def __init__(self, *, width: int, hidden_width: int, kernel: int, causal: bool) -> None:
        super().__init__(kernel=kernel, causal=causal)
        self.taps = nn.Linear(kernel * width, 2 * hidden_width)
        self.out = nn.Linear(hidden_width, width)

    def mix(self, taps: list[Tensor]) -> Tensor:
        a, b = self.taps(torch.cat(taps, -1)).chunk(2, -1)
        return self.out(a * torch.sigmoid(b))


@part_of("cells")
class DepthwiseConvolution(Windowed):
    """`y_t = sum_j (w_j + a_j) * x_(t + j - reach)`, j = 0 .. kernel - 1, for each column of the
    stream separately. Tokens see their neighbours before any attention has learned to look there.

    [B, T, W] -> [B, T, W]. `causal`: the window ends at t, reach = kernel - 1; otherwise t stands
    in its middle. The columns of `taps.weight [W, kernel]` are the w_j. `a_j` is `adjacent` for the
    tokens next to t and 0 for others. With more than 0, neighbours count before anything is
    learned. Source: So et al., 2021, arXiv:2109.08668, sec. 4 (there behind the maps of q, k and
    v); Allen-Zhu, 2025, Physics of Language Models 4.1, "Canon-A" (before the cell, as here).
    Differs: the residual sum and the norm are those of the stack.

    Args:
        outputs: m W columns of the result, m for each column of x, in its order; null: W.
        sharing: r. The columns c, c + W // r, c + 2 (W // r) ... have one kernel; the last W % r
            have their own. `taps.weight [m (W // r + W % r), kernel]`.
        softmax: A kernel is the softmax of its row of `taps.weight`: the lightweight convolution
            of the Evolved Transformer's search (So et al., 2019, tensor2tensor, nas_layers.py).
    """

    projected_by = "taps"

    def __init__(
        self,
        *,
        width: int,
        kernel: int,
        causal: bool,
        adjacent: float = 0.0,
        outputs: Count | None = None,
        sharing: Count = 1,
        softmax: bool = False,
    ) -> None:
        super().__init__(kernel=kernel, causal=causal, outputs=outputs)
        self.times, remainder = divmod(outputs or width, width)
        if remainder or not self.times:
            allowed = f"null, or a multiple of the {width} columns that a depthwise kernel reads"
            raise ConfigError("outputs", outputs, allowed)
        kernels, self.sharing = _share_kernels(width, sharing), sharing
        self.taps = nn.Linear(kernel, self.times * (max(kernels) + 1), bias=False)
        self.rows = [self.times * k + j for k in kernels for j in range(self.times)]
        self.softmax = softmax
        self.first = [adjacent if abs(j - self.reach) == 1 else 0.0 for j in range(kernel)]  # a_j

    def work(self, row: RowSize) -> Work:
        own = super().work(row)
        more = (1 + row.queries) * row.tokens * (len(self.rows) - self.taps.out_features)
        return Work(own.macs + self.kernel * more, kept=own.kept + more)

    def mix(self, taps: list[Tensor]) -> Tensor:
        weight = self.taps.weight.softmax(-1) if self.softmax else self.taps.weight
        weight = weight if self.sharing == 1 else weight[self.rows]
        if self.times > 1:
            taps = [tap.repeat_interleave(self.times, -1) for tap in taps]
        columns = zip(weight.to(taps[0].dtype).unbind(1), self.first, strict=True)
        return sum_columns(taps, [tap + first if first else tap for tap, first in columns])


def _share_kernels(width: int, sharing: int) -> list[int]:
    """The number of the kernel of each column; `sharing` columns have one."""
    shared, own = divmod(width, sharing)
    return [*list(range(shared)) * sharing, *range(shared, shared + own)]


@part_of("cells")
class PlainConvolution(Windowed):
    """`activation(b + sum_j W_j x_(t + j - reach))`, j = 0 .. kernel - 1.

    [B, T, W] -> [B, T, outputs]; `outputs` null: W. `causal`: the window ends at t, reach = kernel
    - 1; otherwise t stands in its middle. The columns of `taps.weight [outputs, kernel W]` are
    those of W_0, then W_1, ... `activation` null: none. With a kernel of 1 it is a linear map.
    `dilation` d: token t + d (j - reach) instead (Yu and Koltun, 2016, arXiv:1511.07122).
    """

    projected_by = "taps"

    def __init__(
        self,
        *,
        width: int,
        kernel: int,
        causal: bool,
        outputs: Count | None = None,
        activation: str | None = None,
        dilation: Count = 1,
    ) -> None:
        super().__init__(kernel=kernel, causal=causal, outputs=outputs, dilation=dilation)
        self.taps = nn.Linear(kernel * width, outputs or width)
        self.activation: Activation = find_activation(activation) if activation else nn.Identity()

    def mix(self, taps: list[Tensor]) -> Tensor:
        return self.activation(self.taps(torch.cat(taps, -1)))


@part_of("cells")
class SeparableConvolution(Windowed):
    """`activation(out(y))`, `y_t = sum_j w_j * x_(t + j - reach)`: a depthwise convolution, then a
    linear map.

    [B, T, W] -> [B, T, outputs]; `outputs` null: W. `causal`: the window ends at t, reach = kernel
    - 1; otherwise t stands in its middle. `taps.weight [W, kernel]` holds the w_j as columns.
    `activation` null: none.
    Source: So et al., 2019, arXiv:1901.11117, fig. 3, with the biases of tensor2tensor: of the
    linear map alone.
    """

    projected_by = "out"

    def __init__(
        self,
        *,
        width: int,
        kernel: int,
        causal: bool,
        outputs: Count | None = None,
        activation: str | None = None,
    ) -> None:
        super().__init__(kernel=kernel, causal=causal, outputs=outputs)
        self.taps = nn.Linear(kernel, width, bias=False)
        self.out = nn.Linear(width, outputs or width)
        self.activation: Activation = find_activation(activation) if activation else nn.Identity()

    def mix(self, taps: list[Tensor]) -> Tensor:
        y = sum_columns(taps, self.taps.weight.to(taps[0].dtype).unbind(1))
        return self.activation(self.out(y))


def sum_columns(taps: list[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """[B, T, W] the sum over the window of each column, times its own weights [W] a tap."""
    y = taps[0] * weights[0]
    for part, weight in zip(taps[1:], weights[1:], strict=True):
        y = torch.addcmul(y, part, weight)
    return y
