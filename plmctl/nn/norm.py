"""Normalisations, each a function of a width, for the norm slots of residual.py."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plmctl.core.parts import part_of


@part_of("norm")
def layer_norm(*, width: int, eps: float, bias: bool = True) -> nn.Module:
    """`(x - mean) / sqrt(var + eps) * weight + bias` over the last axis (Ba et al., 2016,
    arXiv:1607.06450); without `bias`, the scale alone (ModernBERT).
    """
    return nn.LayerNorm(width, eps=eps, bias=bias)


@part_of("norm")
def rms_norm(*, width: int, eps: float) -> nn.Module:
    """`x / sqrt(mean(x^2) + eps) * weight` (Zhang and Sennrich, 2019, arXiv:1910.07467)."""
    return nn.RMSNorm(width, eps=eps)


class CountedLayerNorm(nn.LayerNorm):
    """`layer_norm` of the columns that `counted` marks, as if there were no others; the others
    are 0. It computes in fp32 or more.

    Args:
        norm: The norm whose weights it takes.
    """

    counted: Tensor

    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__(norm.normalized_shape, eps=norm.eps, device="meta")
        self.weight, self.bias = norm.weight, norm.bias
        self.register_buffer("counted", torch.ones_like(norm.weight, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        x, counted, number = _mark(x, self.counted)
        centred = (x - x.sum(-1, keepdim=True) / number) * counted
        variance = centred.square().sum(-1, keepdim=True) / number
        scaled = centred * torch.rsqrt(variance + self.eps) * self.weight
        out = scaled if self.bias is None else scaled + self.bias * counted
        return out.to(self.weight.dtype)


class CountedRMSNorm(nn.RMSNorm):
    """`rms_norm` of the columns that `counted` marks, as if there were no others; the others are 0.
    It computes in fp32 or more.

    Args:
        norm: The norm whose weights it takes.
    """

    counted: Tensor

    def __init__(self, norm: nn.RMSNorm) -> None:
        super().__init__(norm.normalized_shape, eps=norm.eps, device="meta")
        self.weight = norm.weight
        self.register_buffer("counted", torch.ones_like(norm.weight, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        x, _, number = _mark(x, self.counted)
        mean = x.square().sum(-1, keepdim=True) / number
        out: Tensor = x * torch.rsqrt(mean + eps) * self.weight
        return out.to(self.weight.dtype)


def _mark(x: Tensor, counted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(x with 0 in columns that do not count, 1 where a column counts, how many count)."""
    x = x.float() if x.dtype.itemsize < 4 else x
    marks = counted.to(x.dtype)
    return x * marks, marks, marks.sum()
