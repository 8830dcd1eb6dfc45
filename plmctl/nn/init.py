"""Initial weights: rules for a complete model with an explicit generator, so that a seed fixes
every number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor, nn

from plmctl.core.parts import part_of
from plmctl.nn.adaptive import Projection
from plmctl.nn.cells.base import Cell, Softened
from plmctl.nn.positions import RelativeBuckets
from plmctl.nn.residual import Block
from plmctl.nn.starting import Starting
from plmctl.nn.tables import real

Draw = Callable[[Tensor], object]


@part_of("initializer")
def normal(module: nn.Module, *, std: float, generator: Generator) -> None:
    """Every matrix and table `~ N(0, std^2)`, biases 0, norms (1, 0) (Liu et al., 2019, released
    code).
    """
    _fill(module, lambda weight: weight.normal_(std=std, generator=generator), generator)


@part_of("initializer")
def truncated_normal(
    module: nn.Module, *, std: float, cut: float = 2.0, generator: Generator
) -> None:
    """`normal`, drawn again beyond `cut` standard deviations (Devlin et al., 2019, released
    code).
    """
    limit = cut * std
    _fill(
        module,
        lambda weight: nn.init.trunc_normal_(
            weight, std=std, a=-limit, b=limit, generator=generator
        ),
        generator,
    )


@part_of("initializer")
def scaled_residual(
    module: nn.Module, *, std: float, cut: float | None = None, generator: Generator
) -> None:
    """`normal`, then each block's output projection times `1 / sqrt(number of blocks)` (Radford
    et al., 2019, sec. 2.3); with `cut`, drawn again beyond so many standard deviations (ModernBERT:
    3). Cells without weights count as blocks.
    """
    if cut is None:
        normal(module, std=std, generator=generator)
    else:
        truncated_normal(module, std=std, cut=cut, generator=generator)
    blocks = [block for block in module.modules() if isinstance(block, Block)]
    with torch.no_grad():
        for weight in _list_last(blocks):
            weight.mul_(len(blocks) ** -0.5)


@part_of("initializer")
def transformer_xl(
    module: nn.Module, *, std: float, projection_std: float = 0.01, generator: Generator
) -> None:
    """`normal`, the gains of norms `~ N(1, std^2)`, and the projections of adaptive tables `~ N(0,
    projection_std^2)` (Dai et al., 2019, released code, with std 0.02; large models of words:
    0.005).
    """
    normal(module, std=std, generator=generator)
    for part in module.modules():
        if isinstance(part, nn.LayerNorm | nn.RMSNorm):
            part.weight.data.normal_(1.0, std, generator=generator)
        elif isinstance(part, Projection):
            part.weight.data.normal_(std=projection_std, generator=generator)


@part_of("initializer")
def zero_residual(module: nn.Module, *, std: float, generator: Generator) -> None:
    """`normal`, then each block's output projection 0: every block is the identity before the first
    update (Goyal et al., 2017, arXiv:1706.02677, sec. 5.1, for the last norms of residual blocks;
    Zhang et al., 2019, arXiv:1901.09321, sec. 3, for their last maps), but for those of cells
    without weights.
    """
    normal(module, std=std, generator=generator)
    for weight in _list_last([block for block in module.modules() if isinstance(block, Block)]):
        weight.data.zero_()


@part_of("initializer")
def xavier(module: nn.Module, *, std: float, generator: Generator) -> None:
    """Tables `~ N(0, std^2 / W)`, matrices `~ U(-a, a)`, a = std sqrt(6 / (rows + columns)); those
    of q, k and v count as one.

    (Glorot and Bengio, 2010, sec. 4.2; fairseq, transformer, with std 1: Vaswani et al., 2017, do
    not say.)
    """
    _fill(
        module,
        lambda weight: nn.init.xavier_uniform_(weight, gain=std, generator=generator),
        generator,
    )
    for cell in [part for part in module.modules() if isinstance(part, Cell)]:
        maps = cell.projections().maps if "source" in cell.facts.reads else {}
        if "query" in maps:
            q, kv = maps["query"].linear, maps["key"].linear
            bound = std * (6 / (3 * q.out_features + q.in_features)) ** 0.5
            for part in (q, kv):
                part.weight.data.uniform_(-bound, bound, generator=generator)
    for table in _tables(module):
        table.normal_(std=std * table.shape[1] ** -0.5, generator=generator)


@part_of("initializer")
def fan_in(module: nn.Module, *, std: float, generator: Generator) -> None:
    """Matrices `~ N(0, std^2 / columns)`, queries D^-0.5 times that, tables of tokens `~ N(0,
    std^2)`, of relative positions `~ N(0, std^2 / W)`: then scores need no scale.

    (Raffel et al., 2020, arXiv:1910.10683; mesh_tensorflow, attention.py and transformer_layers.py,
    with std 1.)
    """
    _fill(
        module,
        lambda weight: weight.normal_(std=std * weight.shape[-1] ** -0.5, generator=generator),
        generator,
    )
    every = (part for part in module.modules() if isinstance(part, Cell))
    cells = [cell for cell in every if isinstance(cell, Softened)]
    for cell in cells:
        cell.soften(cell.head_width**-0.5)
    for table in _tables(module):
        table.normal_(std=std, generator=generator)
    for part in module.modules():
        if isinstance(part, RelativeBuckets) and cells:
            width = cells[0].projection.out_features
            part.table.weight.data.normal_(std=std * width**-0.5, generator=generator)


def _list_last(blocks: Sequence[Block]) -> list[Tensor]:
    """The weights of the last maps of blocks, as far as their cells have one."""
    maps = [block.cell.last_map() for block in blocks]
    return [last.weight for last in maps if last is not None]


def _tables(module: nn.Module) -> list[Tensor]:
    """The embedding tables as writable tensors, without spare rows."""
    names = {
        f"{name}.weight" for name, part in module.named_modules() if isinstance(part, nn.Embedding)
    }
    return [tensor.data for name, tensor in real(module).items() if name in names]


@torch.no_grad()
def _fill(module: nn.Module, draw: Draw, generator: Generator) -> None:
    """Set all parameters in order: vectors to 0, norm weights to 1, matrices by `draw`; spare rows
    stay 0.
    """
    own = [part for part in module.modules() if isinstance(part, Starting)]
    excluded = {id(parameter) for part in own for parameter in part.parameters()}
    norms = {
        id(part.weight) for part in module.modules() if isinstance(part, nn.LayerNorm | nn.RMSNorm)
    }
    for parameter in real(module).values():
        if id(parameter) in excluded:
            continue
        if id(parameter) in norms:
            parameter.fill_(1.0)
        elif parameter.dim() < 2:
            parameter.zero_()
        else:
            draw(parameter)
    for part in own:
        part.start(generator)
