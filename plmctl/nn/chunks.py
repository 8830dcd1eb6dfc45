"""Tokens of a row in another order, cut into chunks: each chunk meets itself and the one before."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function


class Sorting(NamedTuple):
    """Each row of tokens in R orders."""

    tokens: Tensor  # [B, H, R, L] the token at each rank
    ranks: Tensor  # [B, H, R, L] the rank of each token

    @classmethod
    def by(cls, numbers: Tensor) -> Sorting:
        """Sort tokens by `numbers [B, H, R, L]`, those with equal numbers by position."""
        length = numbers.shape[-1]
        position = torch.arange(length, device=numbers.device)
        tokens = (numbers.long() * length + position).argsort(-1)  # no two of the keys are equal
        ranks = torch.empty_like(tokens).scatter_(-1, tokens, position.expand_as(tokens))
        return cls(tokens, ranks)

    def sort(self, x: Tensor) -> Tensor:
        """[B, H, L, D] -> [B, H, R, L, D], in each of the orders."""
        first_in, first_out = (_number_first(self.tokens.shape[:n], x) for n in (2, 3))
        return _Select.apply(
            x, first_in[..., None, None] + self.tokens, first_out[..., None] + self.ranks
        )

    def unsort(self, y: Tensor) -> Tensor:
        """[B, H, R, L, D] in each of the orders -> the same in the order of the row."""
        first = _number_first(y.shape[:3], y)[..., None]
        return _Select.apply(y, first + self.ranks, first + self.tokens)


def with_previous(x: Tensor) -> Tensor:
    """[B, H, N, m, ...] -> [B, H, N, 2 m, ...]: the chunk before each one, and the chunk itself;
    before the first one comes the last one.
    """
    return torch.cat([x.roll(1, 2), x], 3)


def _number_first(shape: torch.Size, x: Tensor) -> Tensor:
    """The number of the first token of each row, where all tokens of `x [..., L, D]` are numbered
    one row after the other.
    """
    return torch.arange(shape.numel(), device=x.device).view(shape) * x.shape[-2]


class _Select(Function):
    """The tokens of `x [..., D]` at `index [B, H, R, L]`, [B, H, R, L, D].

    The gradient of a token is the sum over the R copies of it in the result, at `copies`. The
    backward pass gathers, which is faster than to scatter.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, copies: Tensor) -> Tensor:
        ctx.shape = x.shape
        ctx.save_for_backward(copies)
        return x.reshape(-1, x.shape[-1])[index]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (copies,) = ctx.saved_tensors
        grads = grad.reshape(-1, grad.shape[-1])
        if len(ctx.shape) == 5:  # it had been sorted R times already
            return grads[copies].view(ctx.shape), None, None
        total = grads[copies[:, :, 0]]
        for number in range(1, copies.shape[2]):
            total += grads[copies[:, :, number]]
        return total, None, None
