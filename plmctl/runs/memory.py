"""The memory of a process in training: of a whole model, and of one that several divide."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from plmctl.config.build import build
from plmctl.config.spec import RunSpec
from plmctl.models.base import Model
from plmctl.models.units import list_cells
from plmctl.nn.divided import find_divided
from plmctl.objectives.base import Objective
from plmctl.runs.dividing import count_divided
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
    memory: Mapping[str, float], outline: tuple[Model, Objective], processes: int, team: int = 1
) -> dict[str, float]:
    """The same of one of several processes, or teams, that divide weights, gradients and optimizer.

    A process has its share of each, and besides whole tensors for a time. Tensors outside of cells
    are whole for a pass. First a cell at work is, with its gradients, and in the end gradients of
    all outside are.
    """
    plans = find_divided(*outline, team) if team > 1 else {}
    elsewhere = {cell: (1 - 1 / team) * count_divided({cell: plan}) for cell, plan in plans.items()}
    every = [cell for _, cell in list_cells(nn.ModuleList([*outline]))]
    cells = [_count(cell) - elsewhere.get(cell, 0) for cell in every]
    outside = memory["weights"] - NUMBER * sum(cells)
    gathered = outside + max(outside, 2 * NUMBER * max(cells, default=0))
    shares = {name: memory[name] / processes for name in DIVIDED}
    return {**memory, **shares, "gathered": gathered}


def divide_cells(
    memory: Mapping[str, float], outline: tuple[Model, Objective], team: int
) -> dict[str, float]:
    """The same of one process of a team: weights of divided cells, and all that belongs to them.
    Activations are counted whole, which is too much.
    """
    divided = NUMBER * count_divided(find_divided(*outline, team))
    kept = 1 - divided / memory["weights"] * (1 - 1 / team)
    return {**memory, **{name: memory[name] * kept for name in DIVIDED}}


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
