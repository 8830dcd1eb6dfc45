"""The weights that a student takes from its teacher: all but the layers."""

from __future__ import annotations

import torch

from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.nn.stack import Stack


@torch.no_grad()
def inherit(model: Model, teacher: Model, name: str, *, fix: str) -> None:
    """Copy everything but the layers into the student; of longer tables of the teacher's backbone
    only the first rows.

    Args:
        name: The name of the teacher, for messages.
        fix: The advice of a message.

    Raises:
        ConfigError: naming what the teacher does not have, or has in another shape.
    """
    layers = {
        id(p)
        for stack in model.modules()
        if isinstance(stack, Stack)
        for p in stack.blocks.parameters()
    }
    theirs = teacher.state_dict(keep_vars=True)
    lacks, wrong = [], []
    for key, own in model.state_dict(keep_vars=True).items():
        if id(own) in layers:
            continue
        theirs_here = theirs.get(key)
        if theirs_here is None:
            lacks.append(key)
        elif theirs_here.shape[1:] == own.shape[1:] and (
            len(theirs_here) == len(own) or (key[0] == "b" and len(theirs_here) > len(own))
        ):
            own.copy_(theirs_here[: len(own)])
        else:
            wrong.append(f"{key} {list(own.shape)} for {list(theirs_here.shape)}")
    if lacks or wrong:
        what = "; ".join(
            filter(
                None,
                [
                    f"it has no {', '.join(lacks)}" * bool(lacks),
                    f"other shapes: {', '.join(wrong)}" * bool(wrong),
                ],
            )
        )
        allowed = (
            "a model trained for the task of the student, which takes everything except the layers"
            f" from it; of {name}: {what}"
        )
        raise ConfigError("teacher", ..., allowed, fix=fix)
