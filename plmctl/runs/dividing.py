"""A run whose cells are computed by teams of processes: what is divided, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from plmctl.attention.patterns.base import Pattern
from plmctl.core.errors import ConfigError
from plmctl.core.terminal import counted
from plmctl.nn.cells.base import Cell
from plmctl.nn.divided import SETTING, CutRows, Plan, find_divided
from plmctl.nn.tables import count


def divide_cells(model: nn.Module, objective: nn.Module, mesh: Any) -> Callable[[], None]:
    """Divide all cells that the processes of `mesh` can compute together (`find_divided`).

    Returns:
        A function that ends it, once the weights are whole again.
    """
    # torch's engine takes as long to import as torch itself
    from plmctl.nn.team import divide

    return divide(find_divided(model, objective, mesh.size()), mesh)


def count_divided(plans: Mapping[nn.Module, Plan]) -> int:
    """The weights of which each process of a team has a part: all of the divided maps, but the
    biases where columns are divided.
    """
    maps = [
        (cell.get_submodule(name), each)
        for cell, plan in plans.items()
        for name, each in plan.items()
    ]
    return sum(
        weight.numel()
        for part, each in maps
        for weight in part.parameters()
        if weight.dim() > 1 or isinstance(each, CutRows)
    )


def describe_division(model: nn.Module, objective: nn.Module, team: int) -> str:
    """The line of a run about its divided cells and its whole ones."""
    plans = find_divided(model, objective, team)
    both = nn.ModuleList([model, objective])
    cells = [part for part in both.modules() if isinstance(part, Cell) and count(part)]
    whole = sorted({type(cell).__name__ for cell in cells if cell not in plans})
    share = count_divided(plans) / sum(weight.numel() for weight in both.parameters())
    line = f"{SETTING}={team}: {counted(len(plans), 'cell')} of {len(cells)} divided, with"
    line += f" {share:.0%} of all parameters"
    return f"{line}; whole in every process: {', '.join(whole)}" if whole else line


def check_team(model: nn.Module, objective: nn.Module, team: int) -> None:
    """ConfigError for a model that `team` processes cannot compute together."""
    if team > 1:
        refuse_patterns((getattr(part, "pattern", None) for part in model.modules()), team)
        find_divided(model, objective, team)


def refuse_compiling(compile: str | bool, team: int) -> None:
    """ConfigError where a model whose cells are divided is to be compiled."""
    if team > 1 and compile in (True, "true"):
        allowed = f"auto or false: a model whose cells are divided ({SETTING}) is not compiled"
        raise ConfigError("train.compile", True, allowed, fix="train.compile=auto")


def refuse_patterns(patterns: Iterable[Pattern | None], team: int) -> None:
    """ConfigError for a pattern that tells heads apart: a process has some of them."""
    for pattern in patterns:
        if team > 1 and pattern is not None and pattern.heads > 1:
            allowed = f"1: {type(pattern).__name__} is another pattern in each head"
            raise ConfigError(SETTING, team, allowed, fix=f"{SETTING}=1")
