"""`torch.compile` where it pays and where it can work; names of parameters do not change."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import torch
from torch import nn

from plmctl.core.errors import ConfigError
from plmctl.core.terminal import tell


def compile_backbone(
    backbone: nn.Module,
    mode: str | bool,
    device: torch.device,
    *,
    say: Callable[[str], None] = tell,
) -> bool:
    """Compile `backbone` in place (at its first call) and return whether it will be compiled.

    `auto`: yes on a GPU, no on a CPU (compiling takes longer there than short runs gain). Without a
    C++ compiler one line says so and the run continues uncompiled.
    """
    mode = {"true": True, "false": False}.get(str(mode).lower(), mode)
    if mode not in (True, False, "auto"):
        raise ConfigError("train.compile", mode, "auto, true or false")
    if mode is False or (mode == "auto" and device.type != "cuda"):
        return False
    if not _find_compiler():
        say("train.compile: no C++ compiler found, continuing without (set CXX, or install g++)")
        return False
    # a graph that cannot be compiled runs as it is, with torch's warning
    torch._dynamo.config.suppress_errors = True
    backbone.compile()
    return True


def _find_compiler() -> str | None:
    return next(
        (
            path
            for name in (os.environ.get("CXX", ""), "g++", "c++", "clang++")
            if name and (path := shutil.which(name))
        ),
        None,
    )
