"""Parameter groups by weight decay and by learning rate.

The learning rates given to an optimizer are peaks: the trainer multiplies each group's
`initial_lr` by the schedule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from plmctl.core.errors import ConfigError

Named = Sequence[tuple[str, nn.Parameter]]
OptimizerFactory = Callable[..., Optimizer]  # (*, parameters: Named)


def has_decay(name: str, parameter: Tensor) -> bool:
    """Matrices and embeddings decay; biases, norm gains and other vectors do not (Devlin et al.,
    2019, code).
    """
    return parameter.ndim >= 2 and not name.endswith("bias")


def groups(
    parameters: Named,
    *,
    lr: float,
    weight_decay: float,
    scales: Mapping[str, float] | None = None,
    layer_decay: float = 1.0,
    **extra: Any,
) -> list[dict[str, Any]]:
    """Parameter groups by (decays or not, rate scale).

    Args:
        scales: glob over names -> factor of lr; the last match counts. Without a match the factor
            is that of `layer_scales`.
        layer_decay: factor of the learning rate from layer to layer.
    """
    by_kind: dict[tuple[bool, float], list[tuple[str, nn.Parameter]]] = {}
    by_layer = layer_scales([name for name, _ in parameters], layer_decay)
    for name, parameter in parameters:
        scale = by_layer[name]
        for pattern, factor in (scales or {}).items():
            scale = factor if fnmatchcase(name, pattern) else scale
        by_kind.setdefault((has_decay(name, parameter), scale), []).append((name, parameter))
    return [
        {
            "params": named,
            "lr": lr * scale,
            "initial_lr": lr * scale,
            "weight_decay": weight_decay if decay else 0.0,
            **extra,
        }
        for (decay, scale), named in by_kind.items()
    ]


def layer_scales(names: Sequence[str], decay: float) -> dict[str, float]:
    """{name: d^(L + 2 - depth)}: depth 0 for embeddings, i + 1 for layer i, L for parts after the
    last layer, L + 2 for heads.

    As in ELECTRA's code (Clark et al., 2020, `optimization.py`). A block that serves several layers
    has the depth of the last
    of them, and L counts distinct layers: one for ALBERT. The blocks of a letter count as spread
    evenly over the layers.
    """
    block = re.compile(r"backbone\.stack\.blocks\.([a-z]+)\.([0-9]+)\.")
    positions = {
        name: (match[1], int(match[2]) + 1) for name in names if (match := block.match(name))
    }
    copies = {
        letter: max(n for other, n in positions.values() if other == letter)
        for letter, _ in positions.values()
    }
    layers = max(copies.values(), default=0)
    depths: dict[str, float] = {}
    for name in names:
        letter, position = positions.get(name, ("", 0))
        stack = layers if name.startswith("backbone.stack.") else 0
        depths[name] = (
            position * layers / copies[letter]
            if position
            else stack
            if name.startswith("backbone.")
            else layers + 2
        )
    return {name: decay ** (layers + 2 - depth) for name, depth in depths.items()}


def check_numbers(*, lr: float, betas: Sequence[float], eps: float, weight_decay: float) -> None:
    """ConfigError for numbers outside their range."""
    if not lr >= 0:
        raise ConfigError("optim.lr", lr, "0 or more")
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ConfigError("optim.betas", list(betas), "two numbers, 0 <= beta < 1")
    if not eps >= 0:
        raise ConfigError("optim.eps", eps, "0 or more")
    if not weight_decay >= 0:
        raise ConfigError("optim.weight_decay", weight_decay, "0 or more")


def can_fuse(parameters: Named) -> bool:
    """torch's fused kernels run on CUDA and on the CPU, for floating types."""
    return all(p.device.type in ("cuda", "cpu") and p.is_floating_point() for _, p in parameters)


def split_groups(
    optimizer: Optimizer,
    parameters: Named,
    kind: Callable[[str], Hashable],
    rates: Mapping[nn.Parameter, float] = MappingProxyType({}),
) -> list[str]:
    """Make parameters of one group with different `kind` groups of their own; returns the name of
    one parameter of each group, "" of an empty one.

    Args:
        rates: Peak rates of parameters that do not have the rate of the optimizer. They do not
            decay. Their groups are marked as `apart`: the rate in the log is not theirs.
    """
    names = {id(parameter): name for name, parameter in parameters}
    split: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        parts: dict[Hashable, list[int]] = {}
        for place, parameter in enumerate(group["params"]):
            own_kind = (rates.get(parameter), kind(names[id(parameter)]))
            parts.setdefault(own_kind, []).append(place)
        lists = [key for key in ("params", "param_names") if key in group]
        split += [
            {**group, **{key: [group[key][place] for place in own] for key in lists}}
            for own in parts.values()
        ] or [group]
    for group in split:
        if group["params"] and (rate := rates.get(group["params"][0])) is not None:
            group.update(lr=rate, initial_lr=rate, weight_decay=0.0, apart=True)
    optimizer.param_groups[:] = split
    return [names[id(group["params"][0])] if group["params"] else "" for group in split]
