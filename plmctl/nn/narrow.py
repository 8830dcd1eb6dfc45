"""The sums between layers in 16 bits: half of the memory and of the traffic of norms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.nn.norm import RMSNorm
from plmctl.nn.stack import Stack


class NarrowLayerNorm(nn.LayerNorm):
    """`layer_norm` whose input and output have autocast's type; it computes in fp32.

    Differs: autocast reads and writes norms in fp32.

    Args:
        norm: The norm whose weights it takes.
    """

    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__(norm.normalized_shape, eps=norm.eps, device="meta")
        self.weight, self.bias = norm.weight, norm.bias

    def forward(self, x: Tensor) -> Tensor:
        place = x.device.type
        if not torch.is_autocast_enabled(place):
            return super().forward(x)
        low = torch.get_autocast_dtype(place)
        weight, bias = (None if w is None else w.to(low) for w in (self.weight, self.bias))
        with torch.autocast(place, enabled=False):
            return F.layer_norm(x.to(low), self.normalized_shape, weight, bias, self.eps)


class NarrowRMSNorm(nn.RMSNorm):
    """`rms_norm` whose input and output have autocast's type; it computes in fp32.

    Args:
        norm: The norm whose weights it takes.
    """

    def __init__(self, norm: nn.RMSNorm) -> None:
        super().__init__(norm.normalized_shape, eps=norm.eps, device="meta")
        self.weight = norm.weight

    def forward(self, x: Tensor) -> Tensor:
        place = x.device.type
        if not torch.is_autocast_enabled(place):
            return super().forward(x)
        low = torch.get_autocast_dtype(place)
        eps = torch.finfo(torch.float32).eps if self.eps is None else self.eps
        with torch.autocast(place, enabled=False):
            return F.rms_norm(x.to(low), self.normalized_shape, self.weight.to(low), eps)


NARROW: dict[type, Any] = {
    nn.LayerNorm: NarrowLayerNorm,
    nn.RMSNorm: NarrowRMSNorm,
    RMSNorm: NarrowRMSNorm,
}


def narrow_streams(*modules: nn.Module) -> None:
    """Let the stacks in `modules`, and all norms of the models that have them, work in autocast's
    type.
    """
    made: dict[int, nn.Module] = {}
    parts = dict.fromkeys(part for module in modules for part in module.modules())
    for part in parts:
        if isinstance(part, Stack):
            part.narrow = True
        for name, child in list(part._modules.items()):  # a shared one under each of its names
            if child is not None and type(child) in NARROW:
                if id(child) not in made:
                    made[id(child)] = NARROW[type(child)](child).train(child.training)
                setattr(part, name, made[id(child)])
