"""Lightweight and dynamic convolution (Wu et al., 2019, arXiv:1901.10430): few kernels, softmax
over each, shared by the columns of a head.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work, check_heads
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams
from plmctl.nn.window import TokenWindow


class KernelConvolution(Cell):
    """`out(y)`, `y[t, c] = sum_j softmax(w[t, h])_j z[t + j - reach, c]`, h the head of column c,
    and z = u * sigmoid(v), [u; v] = in x (gated) or z = in x.

    [B, T, W] -> [B, T, W]. Column c is of head c // (W / H). Dropout acts on the kernels after the
    softmax (DropConnect). `causal`: the window ends at t, reach = kernel - 1; otherwise t stands in
    its middle. Taps outside of the document count 0, and the others do not count more for it. A
    cache keeps the last kernel - 1 of z.
    """

    projected_by = "out"
    facts = CellFacts(computes="convolution")

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        kernel: int,
        causal: bool,
        gated: bool,
        dropout: DropoutRate = 0.0,
    ) -> None:
        super().__init__()
        check_heads(num_heads, width)
        self.window = TokenWindow(kernel, causal)
        self.facts = replace(self.facts, ahead=not causal, offsets=self.window.offsets())
        self.num_heads, self.gated = num_heads, gated
        self.inputs = nn.Linear(width, (2 if gated else 1) * width)
        self.out = nn.Linear(width, width)
        self.taps = self.make_taps(width, kernel)
        self.dropout = Dropout(rate=dropout)

    def make_taps(self, width: int, kernel: int) -> nn.Linear:
        """The weights of the kernels."""
        raise NotImplementedError(type(self).__name__)

    def scores(self, z: Tensor) -> Tensor:
        """[B | 1, T | 1, H, kernel] of states z [B, T, W], before the softmax."""
        raise NotImplementedError(type(self).__name__)

    def work(self, row: RowSize) -> Work:
        own, width = super().work(row), self.out.in_features
        # the sums, and the kernels that each token has
        kept = self.num_heads * self.window.kernel * row.tokens
        return Work(own.macs + self.window.kernel * width * row.tokens, kept=own.kept + kept)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        z = self.inputs(streams["text"])
        if self.gated:
            value, gate = z.chunk(2, -1)
            z = value * torch.sigmoid(gate)
        weights = self.dropout(self.scores(z).softmax(-1))
        around, documents = self.window.surround(z, env.documents, env.slot)
        around = around.unflatten(-1, (self.num_heads, -1))
        return self.out(self.window.sum(around, documents, weights.to(z.dtype)).flatten(2))


@part_of("cells")
class LightweightConvolution(KernelConvolution):
    """A convolution with `num_heads` learned kernels, the same at every position.

    `taps.weight [H, kernel]` before the softmax. The local branch of the Lite Transformer for
    small data (Wu et al., 2020, arXiv:2004.11886, released configs), there without a gate.
    Source: Wu et al., 2019, arXiv:1901.10430, sec. 3.
    Differs: padding and other documents are zeros in the window (released code: padding is set to
    zero before the first map, whose bias then enters).
    """

    def make_taps(self, width: int, kernel: int) -> nn.Linear:
        return nn.Linear(kernel, self.num_heads, bias=False)

    def scores(self, z: Tensor) -> Tensor:
        return self.taps.weight[None, None]

    def work(self, row: RowSize) -> Work:
        own = super().work(row)  # no token is multiplied by the kernels' scores
        return Work(own.macs - self.taps.weight.numel() * row.tokens, kept=own.kept)


@part_of("cells")
class DynamicConvolution(KernelConvolution):
    """A convolution whose kernels are a linear map of the token: `w[t] = W_k z[t]`.

    `taps.weight [H kernel, W]`, ordered (head, tap). The local branch of the Lite Transformer (Wu
    et al., 2020, arXiv:2004.11886, sec. 4).
    Source: Wu et al., 2019, arXiv:1901.10430, sec. 4.
    Differs: as `LightweightConvolution`; a kernel longer than the row is not cut before the softmax
    (released code: it is, in one of two ways to compute it).
    """

    def make_taps(self, width: int, kernel: int) -> nn.Linear:
        return nn.Linear(width, self.num_heads * kernel, bias=False)

    def scores(self, z: Tensor) -> Tensor:
        return self.taps(z).unflatten(-1, (self.num_heads, -1))
