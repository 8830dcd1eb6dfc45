"""Texts without labels, that a task reads from a table, from lines, or from standard input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.core.spelling import spell_setting
from plmctl.storage.paths import find_near
from plmctl.tasks import files
from plmctl.tasks.base import Example, Task
from plmctl.tasks.predictions import NAMED
from plmctl.tasks.tables import SHARES
from plmctl.text.given import read_texts


def read_unlabelled(task: Task, source: str) -> tuple[str, list[Example]]:
    """(the name for its predictions, the examples) of a JSON or CSV table by the task's columns,
    of a file of a kind of its reader, of a file of lines, or with `-` of standard input.
    """
    file = Path(source)
    if source == "-":
        name, examples = (
            "stdin",
            list(_parse_lines(task, "standard input", enumerate(read_texts(None, source)[1], 1))),
        )
    elif not file.exists():
        near = find_near(file, folders=False)
        fix = spell_setting("input", near) if near else "input=<an existing file>"
        raise DataError("no such file", file=file, fix=fix)
    elif files.suffix(file) not in (*NAMED, *getattr(task.reader, "kinds", ())):
        name, examples = (
            file.name.partition(".")[0],
            list(_parse_lines(task, file, files.lines(file))),
        )
    else:
        columns = {
            role: column
            for role, column in task.columns.items()
            if role not in ("label", "labels", "clusters", "id", SHARES)
        }
        name, examples = (
            file.name.partition(".")[0],
            task.read_file(file, columns, labelled=False),
        )
    if not examples:
        raise DataError(
            "there is no text to label", file="standard input" if source == "-" else file
        )
    return name, examples


def _parse_lines(task: Task, file: object, lines: Iterable[tuple[int, str]]) -> Iterator[Example]:
    for number, line in lines:
        try:
            yield task.parse(line, number)
        except ValueError as error:
            raise DataError(str(error), file=file, line=number) from error
