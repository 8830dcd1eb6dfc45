"""The task that reads files with labels: the one whose columns have the names of theirs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plmctl.config.part_help import list_settings
from plmctl.config.plugins import as_words
from plmctl.config.recipes import part_files
from plmctl.core.errors import DataError, list_some
from plmctl.core.spelling import spell_line
from plmctl.text.tabular import OBJECTS, cells_of, kind_of, objects_of

COLUMNS = "task.columns."
TABLES = (".tsv", ".csv")


def describe_labels(path: Any, config_dirs: Sequence[str] = ()) -> str:
    """How the labels of a file, or of the tables in a folder, are checked; empty where there are
    no columns but a text.
    """
    file, names = _read_names(Path(path).expanduser()) if isinstance(path, str) else ("", [])
    if len(names) < 2:
        return ""
    if task := find_task(names, config_dirs):
        line = spell_line("data", "check", path, f"task={task}", *as_words((), config_dirs))
        return f"{line}  checks the labels"
    what = f"the columns of {file} ({list_some(names, 4)})"
    return f"labels are checked with task=, which names {what}: plmctl help task"


def find_task(names: Sequence[str], config_dirs: Sequence[str] = ()) -> str:
    """The task that reads most of these columns by their names, and needs no other; the first of
    equals, or nothing.
    """
    named: dict[str, int] = {}
    for task, file in part_files("task", config_dirs).items():
        settings = list_settings(file, types=False)
        columns = [s.default for s in settings if s.path.startswith(COLUMNS)]
        wanted = {name for column in columns for name in column.strip("[]").split(", ")} - {"null"}
        if wanted and wanted <= set(names):
            named[task] = len(wanted)
    return max(named, key=lambda task: named[task], default="")


def _read_names(path: Path) -> tuple[str, list[str]]:
    """A file, or the first table in a folder, best of train, and the names of its columns."""
    kinds = (*TABLES, *OBJECTS)
    inside = sorted(path.iterdir()) if path.is_dir() else [path]
    tables = [file for file in inside if file.is_file() and kind_of(file) in kinds]
    for file in sorted(tables, key=lambda file: "train" not in file.name)[:1]:
        with contextlib.suppress(DataError, OSError):
            if kind_of(file) in OBJECTS:
                return file.name, list(next(objects_of(file))[1])
            return file.name, next(cells_of(file))[1]
    return "", []
