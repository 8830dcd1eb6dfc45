"""LAMB, for very large batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.core.shares import local_of
from plmctl.training.optim.adamw import NO_CORRECTION, start_moments
from plmctl.training.optim.groups import Named, check_numbers, groups, has_decay
from plmctl.training.optim.shards import find_norms, move_together
from plmctl.training.optim.uncompiled import Uncompiled


@part_of("optim")
class Lamb(Uncompiled):
    """AdamW's step, made as long as the tensor it changes (You et al., 2020, arXiv:1904.00962,
    algorithm 2).

    `r = m̂ / (sqrt(v̂) + eps) + weight_decay theta; theta -= lr min(|theta|, clamp) / |r| r`, ratio
    1 where either norm is 0. Tensors that do not decay (biases, norms) take the plain Adam step.
    Differs: no lower bound on |theta|.
    """

    def __init__(
        self,
        *,
        parameters: Named,
        lr: float,
        betas: Sequence[float],
        eps: float,
        weight_decay: float,
        bias_correction: bool = True,
        clamp: float = 10.0,
    ) -> None:
        check_numbers(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.betas, self.eps, self.bias_correction, self.clamp = betas, eps, bias_correction, clamp
        matrices = [(name, p) for name, p in parameters if has_decay(name, p)]
        vectors = [(name, p) for name, p in parameters if not has_decay(name, p)]
        super().__init__(
            [
                *groups(matrices, lr=lr, weight_decay=weight_decay, trust=True),
                *groups(vectors, lr=lr, weight_decay=0, trust=False),
            ],
            {"lr": lr},
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make one update; norms of tensors that processes share are summed all at once."""
        for group in self.param_groups:
            for some in move_together(group["params"]):
                self._move_together(some, group)

    def _move_together(self, parameters: Sequence[Tensor], group: Mapping[str, Any]) -> None:
        steps = [self._find_step(p, group) for p in parameters]
        if group["trust"]:
            norms = find_norms([*map(local_of, parameters), *steps], of=[*parameters] * 2)
            for r, size, length in zip(
                steps, norms[: len(steps)], norms[len(steps) :], strict=True
            ):
                size.clamp_(max=self.clamp)
                r *= torch.where((size > 0) & (length > 0), size / length, 1.0)
        for p, r in zip(parameters, steps, strict=True):
            local_of(p).add_(r, alpha=-group["lr"])

    def _find_step(self, p: Tensor, group: Mapping[str, Any]) -> Tensor:
        """`r` of the share of a parameter."""
        state = self.state[p]
        if not state:
            state.update(
                start_moments(p, step=0 if self.bias_correction else NO_CORRECTION, fused=False)
            )
        state["step"] += 1
        (beta1, beta2), step = self.betas, float(state["step"])
        grad, own = local_of(p.grad), local_of(p)
        mean, square = local_of(state["exp_avg"]), local_of(state["exp_avg_sq"])
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = (square / (1 - beta2**step)).sqrt_().add_(self.eps)
        return (mean / (1 - beta1**step)).div_(root).add_(own, alpha=group["weight_decay"])
