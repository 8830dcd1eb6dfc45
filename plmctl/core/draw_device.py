"""Weights on the device of the generator that draws them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Generator
    from torch.nn import Module


@contextmanager
def on_device_of(module: Module, generator: Generator) -> Iterator[None]:
    """Have the parameters of `module` where `generator` draws, so that a seed gives the same
    weights on every device; then where they were.
    """
    near = (generator.device.type, "meta")  # weights without numbers draw nothing
    homes = [(p, p.device) for p in module.parameters() if p.device.type not in near]
    for parameter, _ in homes:
        parameter.data = parameter.data.to(generator.device)
    try:
        yield
    finally:
        for parameter, home in homes:
            parameter.data = parameter.data.to(home)
