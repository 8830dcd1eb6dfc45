"""Texts without labels, that a task reads from a table, from lines, or from standard input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.tasks import files
from plmctl.tasks.base import Example, Task
from plmctl.tasks.predictions import NAMED
from plmctl.text.given import read_texts


def read_unlabelled(task: Task, given: str) -> tuple[str, list[Example]]:
    """(what its predictions are called, the examples): a JSON or CSV table by the task's
    columns, else lines; -: stdin.
    """
    file = Path(given)
    if given == "-":
        name, found = (
            "stdin",
            list(_parsed(task, "standard input", enumerate(read_texts(None, given)[1], 1))),
        )
    elif not file.exists():
        raise DataError("no such file", file=file)
    elif files.suffix(file) not in NAMED:
        name, found = file.name.partition(".")[0], list(_parsed(task, file, files.lines(file)))
    else:
        columns = {
            role: column for role, column in task.columns.items() if role not in ("label", "id")
        }
        name, found = (
            file.name.partition(".")[0],
            task.reader.read_file(file, columns, labelled=False),
        )
    if not found:
        raise DataError(
            "there is no text to label", file="standard input" if given == "-" else file
        )
    return name, found


def _parsed(task: Task, file: object, lines: Iterable[tuple[int, str]]) -> Iterator[Example]:
    for number, line in lines:
        try:
            yield task.parse(line, number)
        except ValueError as error:
            raise DataError(str(error), file=file, line=number) from error
