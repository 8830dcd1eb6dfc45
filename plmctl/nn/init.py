"""First weights: rules applied to a whole model with an explicit generator, so that a seed fixes every number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from plmctl.nn.residual import Block
from plmctl.nn.tables import real

Draw = Callable[[Tensor], object]


class Starting(nn.Module):
    """A module with a rule of its own for its first weights, which every rule below leaves to it."""

    def start(self, generator: Generator) -> None:
        raise NotImplementedError(type(self).__name__)


def normal(module: nn.Module, *, std: float, generator: Generator) -> None:
    """Every matrix and table `~ N(0, std^2)`, biases 0, norms (1, 0) (Liu et al., 2019, released code)."""
    _fill(module, lambda weight: weight.normal_(std=std, generator=generator), generator)


def truncated_normal(module: nn.Module, *, std: float, generator: Generator) -> None:
    """The same, drawn again beyond two standard deviations (Devlin et al., 2019, released code)."""
    limit = 2 * std
    _fill(module, lambda weight: nn.init.trunc_normal_(weight, std=std, a=-limit, b=limit, generator=generator), generator)


def scaled_residual(module: nn.Module, *, std: float, generator: Generator) -> None:
    """`normal`, then each block's output projection times `1 / sqrt(number of blocks)` (Radford et al., 2019, sec. 2.3)."""
    normal(module, std=std, generator=generator)
    blocks = [block for block in module.modules() if isinstance(block, Block)]
    with torch.no_grad():
        for block in blocks:
            block.cell.projection.weight.mul_(len(blocks) ** -0.5)


@torch.no_grad()
def _fill(module: nn.Module, draw: Draw, generator: Generator) -> None:
    """In the order of `named_parameters`: vectors to 0, norm weights to 1, matrices by `draw`; spare rows stay 0."""
    own = [part for part in module.modules() if isinstance(part, Starting)]
    left = {id(parameter) for part in own for parameter in part.parameters()}
    norms = {id(part.weight) for part in module.modules() if isinstance(part, nn.LayerNorm | nn.RMSNorm)}
    for parameter in real(module).values():
        if id(parameter) in left:
            continue
        if id(parameter) in norms:
            parameter.fill_(1.0)
        elif parameter.dim() < 2:
            parameter.zero_()
        else:
            draw(parameter)
    for part in own:
        part.start(generator)
