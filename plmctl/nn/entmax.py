"""Weights of attention that may be exactly 0 (Peters et al., 2019; Correia et al., 2019)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.autograd import Function

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.nn.starting import Starting
from plmctl.nn.weights import AttentionWeights

_LEAST = 1.001  # least alpha: at 1, which is softmax, the formula is 0 / 0


@part_of("weights")
class Entmax(AttentionWeights, Starting):
    """`p_i = [(alpha - 1) s_i - tau]_+^(1 / (alpha - 1))`, tau so that p sums to 1: alpha -> 1 is
    softmax, 2 sparsemax, and with a larger one more weights are 0.

    Computed in fp32 or wider, exactly for alpha = 1.5 and 2, else by bisection. With `learned`,
    each head has an alpha of its own, `1 + sigmoid(a)`, that begins as `alpha`.
    (Correia et al., 2019, arXiv:1909.00015, secs. 3 and 4; Peters et al., 2019, arXiv:1905.05702,
    algorithms 1 and 2; Martins and Astudillo, 2016, arXiv:1602.02068, algorithm 1.)

    Args:
        num_heads: H.
        alpha: more than 1; less than 2, too, where it is learned.
        learned: whether it is.
    """

    def __init__(self, *, num_heads: int, alpha: float = 1.5, learned: bool = False) -> None:
        super().__init__()
        if not alpha > 1:
            raise ConfigError("alpha", alpha, "more than 1; 1 is softmax", fix="alpha=1.5")
        if learned and not _LEAST < alpha < 2:
            allowed = f"more than {_LEAST} and less than 2, where it is learned"
            raise ConfigError("alpha", alpha, allowed, fix="alpha=1.5")
        self.first, self.exact = alpha, not learned and alpha in (1.5, 2.0)
        self.logit = nn.Parameter(torch.full((num_heads,), _logit(alpha))) if learned else None

    def start(self, generator: Generator) -> None:
        if self.logit is not None:
            self.logit.data.fill_(_logit(self.first))

    @property
    def alpha(self) -> Tensor:
        """[H] of each head, or [1] of all."""
        if self.logit is None:
            return torch.full((1,), float(self.first), dtype=torch.float64)
        return (1 + self.logit.sigmoid()).clamp(min=_LEAST)

    def forward(self, scores: Tensor) -> Tensor:
        wide = torch.promote_types(scores.dtype, torch.float32)
        alpha = self.alpha.to(device=scores.device, dtype=wide)
        with torch.autocast(scores.device.type, enabled=False):
            weights: Tensor = _Entmax.apply(scores.to(wide), alpha, self.exact)
        return weights.to(scores.dtype)


def _logit(alpha: float) -> float:
    return math.log((alpha - 1) / (2 - alpha))


class _Entmax(Function):
    """With g = p^(2 - alpha) where p > 0, n = g / sum g, h = p log p:

    ds = g dp - n sum(g dp);
    dalpha = sum_i dp_i ((p_i - n_i) / (alpha - 1)^2 - (h_i - n_i sum h) / (alpha - 1)).

    (Correia et al., 2019, proposition 1.)
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: Tensor, exact: bool) -> Tensor:
        ctx.alpha = alpha.shape
        alpha = alpha.view(-1, 1, 1)
        highest = scores.amax(-1, keepdim=True)
        # a query that may see nothing
        highest = highest.masked_fill(highest == -torch.inf, 0)
        # scores 1 or more below the highest have no weight; -inf would become NaN
        x = ((alpha - 1) * (scores - highest)).clamp(min=-2)
        if exact:
            tau = _find_tau_of_square(x) if float(alpha) == 1.5 else _find_tau_of_line(x)
            p = (x - tau).clamp(min=0) ** (1 / (float(alpha) - 1))
        else:
            p = _bisect(x, 1 / (alpha - 1))
        p = (p / p.sum(-1, keepdim=True)).masked_fill_(scores == -torch.inf, 0)
        ctx.save_for_backward(p, alpha)
        return p

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (grad,) = grads
        p, alpha = ctx.saved_tensors
        g = torch.where(p > 0, p ** (2 - alpha), 0)
        share = g / g.sum(-1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
        product = g * grad
        ds = product - share * product.sum(-1, keepdim=True)
        if not ctx.needs_input_grad[1]:
            return ds, None, None
        h = torch.where(p > 0, p * p.log(), 0)
        of_alpha = (p - share) / (alpha - 1) ** 2
        of_alpha = of_alpha - (h - share * h.sum(-1, keepdim=True)) / (alpha - 1)
        return ds, (grad * of_alpha).sum_to_size(alpha.shape).view(ctx.alpha), None


def _bisect(x: Tensor, power: Tensor) -> Tensor:
    """`[x - tau]_+^power` for x [..., K] whose highest is 0 or hidden. The sum over K falls with
    tau: it is 1 or more at -1, and 1 or less at -K^(-1 / power).
    """
    low = torch.full_like(x[..., :1], -1.0)
    width = 1 - torch.tensor(float(x.shape[-1]), dtype=x.dtype, device=x.device) ** (-1 / power)
    p = (x - low).clamp(min=0) ** power
    for _ in range(50 if x.dtype == torch.float64 else 25):
        width = width / 2
        middle = low + width
        p = (x - middle).clamp(min=0) ** power
        low = torch.where(p.sum(-1, keepdim=True) >= 1, middle, low)
    return (x - low).clamp(min=0) ** power


def _find_tau_of_line(x: Tensor) -> Tensor:
    """[..., 1] tau of alpha = 2: the mean of the k highest, less 1 / k. The largest k counts whose
    k-th is above it.
    """
    ordered, count = _order(x)
    tau = (ordered.cumsum(-1) - 1) / count
    return tau.gather(-1, (ordered > tau).sum(-1, keepdim=True) - 1)


def _find_tau_of_square(x: Tensor) -> Tensor:
    """[..., 1] tau of alpha = 1.5, for which the squares of the k highest above it sum to 1."""
    ordered, count = _order(x)
    mean = ordered.cumsum(-1) / count
    variance = (ordered**2).cumsum(-1) / count - mean**2
    tau = mean - (1 / count - variance).clamp(min=0).sqrt()
    return tau.gather(-1, (ordered >= tau).sum(-1, keepdim=True) - 1)


def _order(x: Tensor) -> tuple[Tensor, Tensor]:
    """(x [..., K] from the highest on, 1 to K)."""
    count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
    return x.sort(-1, descending=True).values, count
