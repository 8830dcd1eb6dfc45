"""Cells of which each process of a team computes a part: tensor parallelism (Shoeybi et al., 2019,
arXiv:1909.08053, sec. 3).

A cell begins with maps whose rows are divided, and ends with one whose columns are. From the first
map to the last, a process has some of the heads or inner columns. The team adds up once:

    x -> up[rows of mine] -> activation -> down[:, columns of mine] -> sum of the team -> y
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from plmctl.attention.op import BoundOp
from plmctl.core.errors import ConfigError
from plmctl.nn.env import Env

SETTING = "train.tensor_parallel"


@dataclass(frozen=True)
class CutRows:
    """A linear map of which each process has some rows, and so computes some of its outputs.

    Args:
        units: The number of heads or inner columns: none of them is cut.
        setting: The setting with this number.
        parts: Equal blocks of rows that are divided one by one, such as queries, keys and values.
    """

    units: int
    setting: str
    parts: int = 1


@dataclass(frozen=True)
class CutColumns:
    """A linear map of which each process has some columns, and so reads some of its inputs; the
    results are summed.
    """


# {name of a linear map in the cell: how it is divided}; {}: it cannot be
Plan = Mapping[str, CutRows | CutColumns]


class WholeCell:
    """The part of a cell that a process computes; here all of it, and every method is the identity.

    `nn/team.py` has that of a team.
    """

    size = 1

    def count(self, number: int) -> int:
        """How many of so many heads or columns are computed here."""
        return number // self.size

    def enter(self, x: Tensor) -> Tensor:
        """A whole tensor that divided ones meet; its gradient is summed over the team."""
        return x

    def cut(self, x: Tensor, dim: int) -> Tensor:
        """The part of this process of a whole tensor, one of equal parts along `dim`."""
        return x

    def bind(self, env: Env, name: str) -> BoundOp:
        """The operator of attention to the stream `name`, for the heads of this process."""
        return env.ops[name]

    def draws(self, rate: float) -> AbstractContextManager[Any]:
        """The time of draws for divided tensors, if `rate` is above 0."""
        return nullcontext()


WHOLE = WholeCell()


@runtime_checkable
class Divided(Protocol):
    """A cell that a team of processes can compute together."""

    team: WholeCell

    def plan_division(self) -> Plan:
        """How its linear maps are divided; the plan of a cell that reads its weights in another
        way is empty.
        """
        ...


def find_divided(model: nn.Module, objective: nn.Module, size: int) -> dict[nn.Module, Plan]:
    """{cell: its plan} of all cells that a team of `size` processes computes together.

    A cell stays whole whose plan is empty, or whose maps have additions (`nn/peft`) or weights that
    other parts have, too. A cell inside of another one, or of a backbone that `holds_cells`, stays
    whole, because others read its maps. So does one of the objective that the team cannot divide,
    such as a small generator.

    Raises:
        ConfigError: The team cannot divide a cell of the model; the largest team that can.
    """
    parts = dict.fromkeys([*model.modules(), *objective.modules()])
    owners = Counter(weight for part in parts for weight in part.parameters(recurse=False))

    def stands_alone(part: nn.Module) -> bool:
        if type(part) is not nn.Linear or part._parameters.get("weight") is None:
            return False  # the weights of a copy that is not trained are buffers
        extra = (*part._forward_hooks, *part._forward_pre_hooks, *part.children())
        return not extra and all(owners[weight] == 1 for weight in part.parameters())

    readers = [part for part in parts if hasattr(part, "team")]  # cells
    readers += [part for part in model.modules() if getattr(part, "holds_cells", False)]
    read = {inner for part in readers for inner in part.modules() if inner is not part}
    stated = {
        part: part.plan_division()
        for part in parts
        if isinstance(part, Divided) and part not in read
    }
    plans = {
        part: plan
        for part, plan in stated.items()
        if plan and all(stands_alone(part.get_submodule(name)) for name in plan)
    }
    own = set(model.modules())
    _check([each for part, plan in plans.items() if part in own for each in plan.values()], size)
    fits = {part for part, plan in plans.items() if not _find_cut(plan.values(), size)}
    return {part: plan for part, plan in plans.items() if part in fits}


def _find_cut(plan: Iterable[CutRows | CutColumns], size: int) -> list[CutRows]:
    """The maps whose units `size` processes would cut."""
    return [each for each in plan if isinstance(each, CutRows) and each.units % size]


def _check(plan: Sequence[CutRows | CutColumns], size: int) -> None:
    """ConfigError where `size` processes cannot compute maps together."""
    if not plan:
        allowed = "1: this model has no cell that can be divided"
        raise ConfigError(SETTING, size, allowed, fix=f"{SETTING}=1")
    for first in _find_cut(plan, size):
        fits = [n for n in range(1, size) if size % n == 0 and not _find_cut(plan, n)]
        allowed = f"a divisor of {first.setting}={first.units}: no process has a part of one"
        raise ConfigError(SETTING, size, allowed, fix=f"{SETTING}={fits[-1]}")
