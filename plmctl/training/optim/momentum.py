"""Gradient descent with momentum, with which Al-Rfou's character Transformer was trained."""

from __future__ import annotations

import inspect

import torch

from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Number, Rate
from plmctl.training.optim.groups import Named, groups
from plmctl.training.optim.uncompiled import Uncompiled


@part_of("optim")
class Momentum(Uncompiled, torch.optim.SGD):
    """`v <- momentum v + g; theta -= lr v` (Polyak, 1964; Sutskever et al., 2013, sec. 2)."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))

    def __init__(
        self, *, parameters: Named, lr: Amount, momentum: Rate, weight_decay: Number = 0.0
    ) -> None:
        named = groups(parameters, lr=lr, weight_decay=weight_decay)
        super().__init__(named, lr=lr, momentum=momentum)
