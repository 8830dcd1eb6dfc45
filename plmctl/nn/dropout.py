"""Dropout (Srivastava et al., 2014) everywhere but on attention probabilities."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from plmctl.attention.kernels.keep import apply_mask, draw_mask, keep_rate
from plmctl.core.errors import ConfigError


class Dropout(nn.Module):
    """`x m / kept` with m ~ Bernoulli(kept), kept = 1 - rate; the identity in evaluation.

    Differs: on CPU the rate is rounded to a multiple of 1/65536 (attention/keep.py says why).
    """

    def __init__(self, *, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ConfigError("dropout", rate, "0 <= dropout < 1")
        self.rate = rate

    def extra_repr(self) -> str:
        return f"rate={self.rate}"

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            return _Drop.apply(x, self.rate)
        return F.dropout(x, self.rate)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """`x + dropout(y)` in one step: a residual connection."""
        if not self.training or self.rate == 0:
            return x + y
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            return _DropAdd.apply(x, y, self.rate)
        return x + F.dropout(y, self.rate)


class _Drop(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        keep = draw_mask(x.shape, rate)
        ctx.save_for_backward(keep)
        ctx.scale = 1 / keep_rate(rate)
        return apply_mask(x, keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (keep,) = ctx.saved_tensors
        return apply_mask(grad, keep).mul_(ctx.scale), None


class _DropAdd(Function):
    """The sum in the type of `x` (fp32 stream), the gradient of `y` in the type of `y` (bf16
    under autocast).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, rate: float) -> Tensor:
        keep = draw_mask(y.shape, rate)
        ctx.save_for_backward(keep)
        ctx.scale, ctx.dtype = 1 / keep_rate(rate), y.dtype
        return torch.add(x, apply_mask(y, keep).to(x.dtype), alpha=ctx.scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        (keep,) = ctx.saved_tensors
        return grad, apply_mask(grad.to(ctx.dtype), keep).mul_(ctx.scale), None
