"""Functions that a compiled graph must not hold. torch's own decorator, `torch.compiler.disable`,
imports the whole compiler, which takes as long as torch itself; a mark costs nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_marked: list[Callable[..., Any]] = []


def outside_graphs(function: Function) -> Function:
    """Mark a function of a module, or of a class in it, that runs outside of compiled graphs."""
    _marked.append(function)
    return function


def break_graphs() -> None:
    """Have all marked functions run outside of the graphs that are compiled from now on.

    Each is replaced where it was defined by `torch.compiler.disable(function)`.
    """
    import torch

    while _marked:
        function = _marked.pop()
        *owners, name = function.__qualname__.split(".")
        owner = functools.reduce(getattr, owners, sys.modules[function.__module__])
        setattr(owner, name, torch.compiler.disable(function))


def find_compiler() -> str | None:
    """The C++ compiler that torch's own compiler needs; None if it is missing."""
    names = (os.environ.get("CXX", ""), "g++", "c++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def can_compile_for_gpu() -> bool:
    """Whether graphs can be compiled for a GPU here: with Triton and a C++ compiler."""
    return importlib.util.find_spec("triton") is not None and find_compiler() is not None
