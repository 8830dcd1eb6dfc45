"""AdamW, torch's own with its fused kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.training.optim.groups import Named, can_fuse, check_numbers, groups
from plmctl.training.optim.uncompiled import UncompiledAdamW

NO_CORRECTION = 1e6  # a step count from which 1 - 0.999^step is 1 in every floating type


@part_of("optim")
class AdamW(UncompiledAdamW):
    """`theta -= lr (m̂ / (sqrt(v̂) + eps) + weight_decay theta)` (Loshchilov and Hutter, 2019,
    arXiv:1711.05101).

    torch's own, with its fused kernel. `bias_correction=False` takes m and v as they are, as BERT's
    code does (google-research/bert `optimization.py`): the first update is then
    (1-beta1)/sqrt(1-beta2) = 3.2 times larger. The step count then begins at a million.
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
        scales: Mapping[str, float] | None = None,
        layer_decay: float = 1.0,
    ) -> None:
        check_numbers(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        if not 0 < layer_decay <= 1:
            allowed = "0 < layer_decay <= 1; 1 is the same rate for all layers"
            raise ConfigError("optim.layer_decay", layer_decay, allowed)
        self.bias_correction = bias_correction
        named = groups(
            parameters, lr=lr, weight_decay=weight_decay, scales=scales, layer_decay=layer_decay
        )
        super().__init__(
            named, lr=lr, betas=(betas[0], betas[1]), eps=eps, fused=can_fuse(parameters)
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make one update."""
        if not self.bias_correction:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None and not self.state[p]:
                        self.state[p] = start_moments(
                            p, step=NO_CORRECTION, fused=bool(group["fused"])
                        )
        super().step(closure)


def start_moments(p: Tensor, *, step: float, fused: bool) -> dict[str, Tensor]:
    """AdamW's state for one parameter, as torch itself lays it out."""
    return {
        "step": torch.tensor(step, dtype=torch.float32, device=p.device if fused else "cpu"),
        "exp_avg": torch.zeros_like(p),
        "exp_avg_sq": torch.zeros_like(p),
    }
