"""Optimizer state as named tensors, which are saved without pickle and loaded by parameter name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from plmctl.core.errors import DataError
from plmctl.core.shares import is_shared
from plmctl.nn.tables import with_spare
from plmctl.training.optim.groups import Named


def optimizer_tensors(
    optimizer: Optimizer, parameters: Named, *, rows: Mapping[str, int] = {}
) -> dict[str, Tensor]:
    """{"exp_avg/backbone.embedding.token.weight": ...}; rates and decays come from the config.

    Args:
        rows: rows of tokens of padded tables (`nn.tables.token_rows`); only these are kept, since
            spare rows are never updated and their state is 0.
    """
    return {
        f"{key}/{name}": (
            value[: rows[name]]
            # a slice of a DTensor would gather it
            if name in rows and value.shape == parameter.shape and not is_shared(value)
            else value
        )
        for name, parameter in parameters
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(
    optimizer: Optimizer,
    parameters: Named,
    tensors: Mapping[str, Tensor],
    *,
    rows: Mapping[str, int] = {},
) -> None:
    """Restore what `optimizer_tensors` gave, through torch's `load_state_dict`, which knows the
    device and type of each state.

    Raises:
        DataError: for a tensor of a parameter that is not trained.
    """
    names = {parameter: name for name, parameter in parameters}
    shapes = {name: parameter.shape for name, parameter in parameters}
    order = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    index = {name: number for number, name in enumerate(order)}
    state: dict[int, dict[str, Any]] = {}
    for key, value in tensors.items():
        kind, _, name = key.partition("/")
        if name not in index:
            problem = f"the optimizer state has '{name}', which this run does not train"
            raise DataError(problem, fix="use the config in its folder")
        table = name in rows and value.shape == (rows[name], *shapes[name][1:])
        state.setdefault(index[name], {})[kind] = (
            with_spare(value, rows=shapes[name][0]) if table else value
        )
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )
