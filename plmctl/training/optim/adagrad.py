"""Adagrad, with which ELMo's language models were trained (Duchi et al., 2011)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.shares import local_of
from plmctl.training.optim.groups import Named, groups
from plmctl.training.optim.shards import find_norms
from plmctl.training.optim.uncompiled import Uncompiled

_STEP = inspect.unwrap(torch.optim.Adagrad.step)


@part_of("optim")
class Adagrad(Uncompiled, torch.optim.Adagrad):
    """`s += g^2; theta -= lr g / (sqrt(s) + eps)`, s = `start` at first (Duchi et al., 2011,
    JMLR 12, sec. 1.1).

    With `clip`, a tensor whose gradient has the norm n > clip takes clip / n of its step. The sum s
    still grows by its whole gradient (facebookresearch/adaptive-span, adagrad_with_grad_clip.py).
    `fused`: one pass over the memory for a step, several times faster for large tables; the last
    bits differ.
    """

    def __init__(
        self,
        *,
        parameters: Named,
        lr: float,
        start: float,
        eps: float,
        weight_decay: float = 0.0,
        clip: float | None = None,
        fused: bool = False,
    ) -> None:
        for name, value in (
            ("lr", lr),
            ("start", start),
            ("eps", eps),
            ("weight_decay", weight_decay),
            ("clip", clip or 0.0),
        ):
            if not value >= 0:
                raise ConfigError(f"optim.{name}", value, "0 or more")
        named = groups(parameters, lr=lr, weight_decay=weight_decay)
        if fused and clip is not None:
            fix = "optim.fused=false, or optim.clip=null"
            raise ConfigError("optim.fused", fused, "false with clip", fix=fix)
        on_cpu = all(p.device.type == "cpu" for _, p in parameters)
        super().__init__(
            named, lr=lr, initial_accumulator_value=start, eps=eps, fused=(fused and on_cpu) or None
        )
        self.clip = clip

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make one update."""
        if self.clip is None:
            _STEP(self, closure)
            return
        for group in self.param_groups:
            live = [p for p in group["params"] if p.grad is not None]
            for p, norm in zip(live, find_norms([p.grad for p in live]), strict=True):
                self._move(p, norm, group)

    def _move(self, p: Tensor, norm: Tensor, group: Mapping[str, Any]) -> None:
        assert self.clip is not None
        state, own = self.state[p], local_of(p)
        share = (self.clip / norm.clamp(min=1e-12)).clamp(max=1.0)
        grad = local_of(p.grad).add(own, alpha=group["weight_decay"])
        state["step"] += 1
        total = local_of(state["sum"]).addcmul_(grad, grad)
        own.sub_(group["lr"] * share * grad / (total.sqrt() + group["eps"]))
