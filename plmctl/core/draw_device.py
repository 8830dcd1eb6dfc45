"""First weights on the device of the generator that draws them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Generator
    from torch.nn import Module


def draw_weights(module: Module, initializer: Callable[..., None], generator: Generator) -> None:
    """Draw the weights of `module` where `generator` is, so that a seed gives the same ones on
    every device; then they are where they were.

    Args:
        initializer: (module, *, generator), the rule.
    """
    near = (generator.device.type, "meta")  # weights without numbers draw nothing
    homes = [(p, p.device) for p in module.parameters() if p.device.type not in near]
    for parameter, _ in homes:
        parameter.data = parameter.data.to(generator.device)
    try:
        initializer(module, generator=generator)
    finally:
        for parameter, home in homes:
            parameter.data = parameter.data.to(home)
