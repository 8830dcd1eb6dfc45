"""Normalisations, each a function of a width, for the norm slots of residual.py."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Share
from plmctl.nn.starting import Starting


@part_of("norm")
def layer_norm(*, width: int, eps: float, bias: bool = True) -> nn.Module:
    """`(x - mean) / sqrt(var + eps) * weight + bias` over the last axis (Ba et al., 2016,
    arXiv:1607.06450); without `bias`, the scale alone (ModernBERT).
    """
    return nn.LayerNorm(width, eps=eps, bias=bias)


@part_of("norm")
def rms_norm(*, width: int, eps: float) -> nn.Module:
    """`x / sqrt(mean(x^2) + eps) * weight` (Zhang and Sennrich, 2019, arXiv:1910.07467)."""
    return RMSNorm(width, eps=eps)


class RMSNorm(nn.RMSNorm):
    """`nn.RMSNorm` in the type of its weights: torch warns of 16 bits by fp32, and is slow."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype))


@part_of("norm")
def batch_norm(*, width: int, eps: float, momentum: Share = 0.1) -> nn.Module:
    """`(x - mean) / sqrt(var + eps) * weight + bias`, mean and variance of each column over the
    real tokens of the batch (Ioffe and Szegedy, 2015, arXiv:1502.03167; in a Transformer: Shen et
    al., 2020, arXiv:2003.07845, sec. 3).

    In evaluation, running means take their part: `m (1 - momentum) + momentum mean` after each
    pass of training. There a token is normed by statistics of later ones, and of other rows.
    """
    return BatchNorm(width=width, eps=eps, momentum=momentum)


@part_of("norm")
def no_norm(*, width: int) -> nn.Module:
    """`x * weight + bias`, for speed (MobileBERT: Sun et al., 2020, arXiv:2004.02984, sec. 3.3)."""
    return NoNorm(width=width)


class NoNorm(Starting):
    """`x * weight + bias`: the weights of a norm, without its statistics."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def start(self, generator: torch.Generator) -> None:
        self.weight.data.fill_(1.0)
        self.bias.data.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


class BatchNorm(NoNorm):
    """`batch_norm` of tokens, of which padding has no part in the statistics.

    Each process has its own statistics. A layer that runs again for the backward pass counts twice
    in the running means.
    """

    joins_tokens = True  # whether the norm reads several tokens together, so that padding counts
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, *, width: int, eps: float, momentum: float) -> None:
        super().__init__(width=width)
        self.eps, self.momentum = eps, momentum
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def start(self, generator: torch.Generator) -> None:
        super().start(generator)
        self.running_mean.zero_()
        self.running_var.fill_(1.0)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """x [B, T, W], or [P, W] -> as `x`; `real` [B, T] bool: the tokens that count."""
        wide = x.float() if x.dtype.itemsize < 4 else x
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, var = self._measure(wide, real)
        out = (wide - mean) * torch.rsqrt(var + self.eps)
        return super().forward(out).to(x.dtype)

    def _measure(self, x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """(mean [W], variance [W]) of the real tokens, which the running ones follow."""
        marks = x.new_ones(x.shape[:-1]) if real is None else real.to(x.dtype)
        rows, counted = x.flatten(0, -2), marks.flatten()[:, None]
        number = counted.sum().clamp(min=1)
        mean = (rows * counted).sum(0) / number
        var = ((rows - mean).square() * counted).sum(0) / number
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            unbiased = var * number / (number - 1).clamp(min=1)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return mean, var


def norm_tokens(norm: nn.Module, x: Tensor, real: Tensor | None) -> Tensor:
    """`x` [B, T, W] normed; `real` [B, T] bool: what is no padding, None: everything."""
    if getattr(type(norm), "joins_tokens", False):
        fits = real is not None and real.shape == x.shape[:-1]
        return norm(x, real if fits else None)  # type: ignore[no-any-return]
    return norm(x)  # type: ignore[no-any-return]


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
