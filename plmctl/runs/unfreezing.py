"""Gradual unfreezing as stages of a fine-tuning (`train.unfreeze`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.models.capabilities import list_layer_parts
from plmctl.training.stages import Stage

SETTING = "train.unfreeze"


def group_layers(model: Model) -> list[list[str]]:
    """The names of parameters: of the heads on the layers, then of each layer from the top down, at
    last of the input.

    Raises:
        ConfigError: The model has no layers that can be told apart.
    """
    backbone = model.backbone
    parts = list_layer_parts(backbone)
    if not parts:
        allowed = f"false: the layers of a {type(backbone).__name__} are not trained one by one"
        raise ConfigError(SETTING, True, allowed, fix=f"{SETTING}=false")
    names = {id(weight): name for name, weight in model.named_parameters()}
    groups: list[list[str]] = []
    known: set[str] = set()
    for own in reversed(parts):
        group = [names[id(weight)] for part in own for weight in part.parameters()]
        groups.append([name for name in dict.fromkeys(group) if name not in known])
        known.update(group)
    rest = [name for name in names.values() if name not in known]
    return [rest, *(group for group in groups if group)]


def make_stages(
    spec: Any, model: Model, whole: Stage, *, epoch: int, steps: int | None
) -> tuple[list[Stage], str]:
    """One stage for each epoch, of which each trains one group more than the one before; and a
    line on it.

    (Howard and Ruder, 2018, arXiv:1801.06146, sec. 3.3.)

    Args:
        epoch: updates of an epoch.
        steps: updates of the run.
    """
    check_unfreezing(spec)
    if steps is None:
        allowed = "false: the length of this run is not known in epochs"
        raise ConfigError(SETTING, True, allowed, fix="train.epochs=<a number>")
    groups = group_layers(model)
    starts = list(range(0, steps, epoch))[: len(groups)]
    ends = [*starts[1:], steps]
    stages = [
        replace(
            whole,
            share=(end - start) / steps,
            trainable=[name for group in groups[: number + 1] for name in group],
        )
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    reached = len(stages)
    line = f"each epoch trains one more of {len(groups)} groups of weights, from the heads down"
    if reached < len(groups):
        line += f"; {len(groups) - reached} are never trained (train.epochs={len(groups)} would)"
    return stages, line


def check_unfreezing(spec: Any) -> None:
    """ConfigError for settings that say otherwise which layers are trained."""
    for name, without in (("trainable", ()), ("frozen_outputs", "batch")):
        value = spec.train[name]
        if value not in (without, []):
            allowed = (
                f"{list(without) if without == () else without}: {SETTING} trains other layers"
            )
            fix = f"leave it out, or {SETTING}=false"
            raise ConfigError(f"train.{name}", value, f"{allowed} in each epoch", fix=fix)
    if spec.peft:
        allowed = f"[]: {SETTING} trains the layers themselves"
        raise ConfigError("peft", list(spec.peft), allowed, fix=f"{SETTING}=false")
