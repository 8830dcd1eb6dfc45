"""The labelled docstrings that come with Python, as the files of a task: `task.path=builtin`."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

from plmctl.storage.gate import admit
from plmctl.storage.paths import find_cache_folder
from plmctl.text.corpus import write_task

BUILTIN = "builtin"


def write_builtin_task(cache_dir: str | None = None) -> Path:
    """The folder of the labelled docstrings of this Python, written once into the user's cache."""
    folder = find_cache_folder(cache_dir) / f"docstrings-{platform.python_version()}"
    if not folder.is_dir():
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        write_task(partial)
        with contextlib.suppress(OSError):  # somebody else was faster
            os.replace(admit(partial), admit(folder))
    return folder
