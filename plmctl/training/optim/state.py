"""Optimizer state as named tensors, so that it is saved without pickle and found again by
parameter name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from plmctl.core.errors import DataError
from plmctl.nn.tables import with_spare
from plmctl.training.optim.groups import Named


def optimizer_tensors(
    optimizer: Optimizer, parameters: Named, *, rows: Mapping[str, int] = {}
) -> dict[str, Tensor]:
    """{"exp_avg/backbone.embedding.token.weight": ...}; rates and decays are not state, they come
    from the config.

    `rows` (`nn.tables.token_rows`): what to keep of padded tables; spare rows are never updated,
    their state is 0.
    """
    return {
        f"{key}/{name}": (
            value[: rows[name]] if name in rows and value.shape == parameter.shape else value
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
    """The inverse, through torch's own `load_state_dict`, which knows where each kind of state
    belongs.
    """
    names = {parameter: name for name, parameter in parameters}
    shapes = {name: parameter.shape for name, parameter in parameters}
    order = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    place = {name: number for number, name in enumerate(order)}
    state: dict[int, dict[str, Any]] = {}
    for key, value in tensors.items():
        kind, _, name = key.partition("/")
        if name not in place:
            raise DataError(
                f"the optimizer state has '{name}', which this run does not train",
                fix="use the config saved beside it",
            )
        table = name in rows and value.shape == (rows[name], *shapes[name][1:])
        state.setdefault(place[name], {})[kind] = (
            with_spare(value, rows=shapes[name][0]) if table else value
        )
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )
