"""The memory of a process in training: of a whole model, and of one that several divide."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from plmctl.config.build import build
from plmctl.config.spec import RunSpec
from plmctl.models.base import Model
from plmctl.models.units import list_cells
from plmctl.objectives.base import Objective
from plmctl.training.optim.footprint import count_state
from plmctl.training.trainer import name_parameters

DIVIDED = ("weights", "gradients", "optimizer")
NUMBER = 4  # bytes: weights and gradients are fp32


def count_optimizer(spec: RunSpec, outline: tuple[Model, Objective]) -> int | None:
    """Bytes of the state of `optim` for the weights that are trained; None where it is not
    known.
    """
    factory = build(spec["optim"], plugins=spec.plugins, path="optim")
    return count_state(factory, name_parameters(*outline))


def divide(
    memory: Mapping[str, float], outline: tuple[Model, Objective], processes: int
) -> dict[str, float]:
    """The same of one of several processes that divide weights, gradients and optimizer.

    A process has its share of each, and whole tensors for a time. Tensors outside of cells are
    whole for a pass, with their gradients; so are two cells, one at work and the next, with the
    gradients of one.
    """
    cells = [_count(cell) for _, cell in list_cells(nn.ModuleList([*outline]))]
    outside = memory["weights"] - NUMBER * sum(cells)
    gathered = 2 * outside + 3 * NUMBER * max(cells, default=0)
    shares = {name: memory[name] / processes for name in DIVIDED}
    return {**memory, **shares, "gathered": (1 - 1 / processes) * gathered}


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
