"""Optional libraries: their import, and the command that installs a missing one."""

from __future__ import annotations

import importlib
import platform
import shlex
from importlib import metadata
from pathlib import Path
from typing import Any

from plmctl.core.errors import UsageError


def require_library(module: str, extra: str, what: str, *, otherwise: str = "") -> Any:
    """Import the library for `what`, one of those under `extra` in pyproject.toml; UsageError with
    the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        fix = install_command(extra) + (f", or {otherwise}" if otherwise else "")
        raise UsageError(f"{what} needs {module.partition('.')[0]}\n  fix: {fix}") from error


def describe_versions() -> str:
    """`plmctl 0.1.0, torch 2.13.0, Python 3.11.7`; neither is imported for it."""
    versions = []
    for name in ("plmctl", "torch"):
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{name} (not installed)")
    return ", ".join([*versions, f"Python {platform.python_version()}"])


def install_command(extra: str) -> str:
    """The command that installs the libraries under `extra`, even if plmctl is not on PyPI."""
    try:
        required = metadata.requires("plmctl") or []
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return shlex.join(
            ["pip", "install", "-e", f"{Path(__file__).resolve().parents[2]}[{extra}]"]
        )
    pairs = [line.partition(";") for line in required]
    names = [
        name.strip()
        for name, _, marker in pairs
        if marker.replace('"', "'").strip() == f"extra == '{extra}'"
    ]
    return shlex.join(["pip", "install", *names])
