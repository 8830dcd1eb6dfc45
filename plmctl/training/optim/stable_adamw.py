"""StableAdamW: AdamW whose steps shorten where gradients are larger than their past."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.core.shares import local_of
from plmctl.training.optim.adamw import start_moments
from plmctl.training.optim.groups import Named, check_numbers, groups
from plmctl.training.optim.shards import move_together, sum_shares
from plmctl.training.optim.uncompiled import Uncompiled


@part_of("optim")
class StableAdamW(Uncompiled):
    """AdamW with a rate of its own for each tensor, `lr / max(1, r)`, where
    `r = sqrt(mean(g^2 / max(v, eps^2)))` (Wortsman et al., 2023, arXiv:2304.13013, algorithm 2).

    m and v are means with debiased betas, `beta_t = beta (1 - beta^(t-1)) / (1 - beta^t)`; decay
    multiplies weights by `1 - lr_t weight_decay`. It needs no clipping of gradients (ModernBERT:
    Warner et al., 2024, arXiv:2412.13663, sec. 2.2.2). `scales`: glob over names -> factor of lr.
    """

    def __init__(
        self,
        *,
        parameters: Named,
        lr: float,
        betas: Sequence[float],
        eps: float,
        weight_decay: float,
        scales: Mapping[str, float] | None = None,
    ) -> None:
        check_numbers(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.betas, self.eps = betas, eps
        named = groups(parameters, lr=lr, weight_decay=weight_decay, scales=scales)
        super().__init__(named, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make one update; means over tensors that processes share are summed all at once."""
        for group in self.param_groups:
            for some in move_together(group["params"]):
                self._move_together(some, group)

    def _move_together(self, parameters: Sequence[Tensor], group: Mapping[str, Any]) -> None:
        sums = sum_shares([self._follow(p) for p in parameters], parameters)
        for p, total in zip(parameters, sums, strict=True):
            ratio = (total / p.numel()).sqrt_()
            rate = group["lr"] / ratio.clamp_(min=1.0)
            own, state = local_of(p), self.state[p]
            mean, square = local_of(state["exp_avg"]), local_of(state["exp_avg_sq"])
            own.mul_(1 - rate * group["weight_decay"])
            own.sub_(rate * mean / (square.sqrt() + self.eps))

    def _follow(self, p: Tensor) -> Tensor:
        """[] the sum of `g^2 / max(v, eps^2)` over the share of a parameter, after its means have
        followed the gradient.
        """
        state = self.state[p]
        if not state:
            state.update(start_moments(p, step=0, fused=False))
        state["step"] += 1
        grad, step = local_of(p.grad), float(state["step"])
        mean, square = local_of(state["exp_avg"]), local_of(state["exp_avg_sq"])
        first, second = (_debias(beta, step) for beta in self.betas)
        mean.lerp_(grad, 1 - first)
        square.mul_(second).addcmul_(grad, grad, value=1 - second)
        return (grad.square() / square.clamp(min=self.eps**2)).sum()


def _debias(beta: float, step: float) -> float:
    """The weight of the old mean at a step, from 1 on: a mean that starts without a bias to 0."""
    return beta * (1 - math.pow(beta, step - 1)) / (1 - math.pow(beta, step))
