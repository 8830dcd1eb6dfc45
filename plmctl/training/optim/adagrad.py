"""Adagrad, with which ELMo's language models were trained (Duchi et al., 2011)."""

from __future__ import annotations

import inspect

import torch

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.training.optim.groups import Named, groups
from plmctl.training.optim.uncompiled import Uncompiled


@part_of("optim")
class Adagrad(Uncompiled, torch.optim.Adagrad):
    """`s += g^2; theta -= lr g / (sqrt(s) + eps)`, s = `start` at first (Duchi et al., 2011,
    JMLR 12, sec. 1.1).
    """

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adagrad.step))

    def __init__(
        self, *, parameters: Named, lr: float, start: float, eps: float, weight_decay: float = 0.0
    ) -> None:
        for name, value in (
            ("lr", lr),
            ("start", start),
            ("eps", eps),
            ("weight_decay", weight_decay),
        ):
            if not value >= 0:
                raise ConfigError(f"optim.{name}", value, "0 or more")
        named = groups(parameters, lr=lr, weight_decay=weight_decay)
        super().__init__(named, lr=lr, initial_accumulator_value=start, eps=eps)
