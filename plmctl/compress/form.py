"""The kinds of files that a model is written as."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import NamedTuple

from plmctl.core.errors import UsageError
from plmctl.core.extras import EXTRAS, install_command
from plmctl.runtime.stored import LIBRARIES


class Form(NamedTuple):
    """The library that computes a file, and the bits of its numbers."""

    library: str
    bits: int = 8

    def describe(self) -> str:
        """The form for people: "openvino, 8 bits"."""
        return f"{self.library}, {self.bits} bits"


PACKED = Form("torch", 4)  # computed in fp32, so that its file alone is small


def list_forms(libraries: Sequence[str] = ()) -> list[Form]:
    """The kinds of files in 8 bits that are computed here.

    Args:
        libraries: The libraries that may compute them; none: all.

    Raises:
        UsageError: None of them is installed.
    """
    wanted = tuple(libraries) or tuple(LIBRARIES)
    there = [name for name in wanted if all(map(_can_import, EXTRAS[name].libraries))]
    if not there:
        fix = ", or ".join(install_command(name) for name in wanted)
        raise UsageError(f"a small model is computed by {' or '.join(wanted)}\n  fix: {fix}")
    return [Form(name) for name in there]


def _can_import(module: str) -> bool:
    """Whether a library is there and can be imported: what a step fails with is stored."""
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True
