"""Which weights stand for the layers of a model, where they are compared."""

from __future__ import annotations

from typing import cast

from torch import nn

from plmctl.core.errors import ConfigError
from plmctl.nn.stack import Stack


def last_maps(model: nn.Module) -> dict[str, nn.Parameter]:
    """{layer: weight of its last linear map, W^{2,l} of a Transformer}; several stacks have their
    names before the number.

    Layers that share their weights share a gradient: the first of them stands for all. "last" is
    the last layer of the last stack once more, so that models of several depths compare.
    """
    stacks = {name: module for name, module in model.named_modules() if isinstance(module, Stack)}
    found: dict[str, nn.Parameter] = {}
    for name, stack in stacks.items():
        owner = name.removeprefix("backbone.").removesuffix("stack").rstrip(".").replace(".", "/")
        prefix = f"{owner}/" if len(stacks) > 1 and owner else ""
        ends = [step for step in stack.steps if step.ends]
        for number, step in enumerate(ends, start=1):
            weight = cast(nn.Parameter, stack.block(step).cell.projection.weight)
            if not any(weight is known for known in found.values()):
                found[f"{prefix}layer.{number}"] = weight
    if found:
        found["last"] = weight
    if not found:
        raise ConfigError(
            "train.grad_norms",
            True,
            "false: this model has no layers of a stack",
            fix="train.grad_norms=false",
        )
    return found
