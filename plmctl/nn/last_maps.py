"""One weight for each layer of a model, for comparisons of layers."""

from __future__ import annotations

from typing import cast

from torch import nn

from plmctl.core.errors import ConfigError
from plmctl.nn.stack import Stack


def find_last_maps(model: nn.Module) -> dict[str, nn.Parameter]:
    """{layer: weight of its last linear map, W^{2,l} of a Transformer}; with several stacks, names
    begin with the stack.

    Layers that share their weights share a gradient, and the first of them represents all. "last"
    is the last layer of the last stack, so that models of several depths can be compared.
    """
    weight: nn.Parameter | None = None
    stacks = {name: module for name, module in model.named_modules() if isinstance(module, Stack)}
    maps: dict[str, nn.Parameter] = {}
    for name, stack in stacks.items():
        owner = name.removeprefix("backbone.").removesuffix("stack").rstrip(".").replace(".", "/")
        prefix = f"{owner}/" if len(stacks) > 1 and owner else ""
        ends = [step for step in stack.steps if step.ends]
        for number, step in enumerate(ends, start=1):
            last = stack.block(step).cell.last_map()
            if last is None:
                continue
            weight = cast(nn.Parameter, last.weight)
            if not any(weight is known for known in maps.values()):
                maps[f"{prefix}layer.{number}"] = weight
    if weight is not None:
        maps["last"] = weight
    else:
        allowed = "false: no layer of this model ends with a linear map"
        raise ConfigError("train.grad_norms", True, allowed, fix="train.grad_norms=false")
    return maps
