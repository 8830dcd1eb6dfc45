"""Texts without labels, that a task reads from a table, from lines, or from standard input."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.core.spelling import spell_setting
from plmctl.storage.paths import find_near
from plmctl.tasks.predictions import NAMED
from plmctl.tasks.readers.span_rows import TEXT
from plmctl.tasks.readers.tables import SHARES
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.text.given import read_texts
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import JSON, kind_of, named_rows

PIECE = 10_000  # examples that are read, answered and written together


def read_unlabelled(task: Task, source: str) -> tuple[str, list[Example]]:
    """(the name for its predictions, the examples) of a new file. It is a JSON or CSV table by the
    task's columns, a file of a kind of its reader, or a file of lines. `-` is standard input.
    """
    name, pieces = stream_unlabelled(task, source)
    return name, list(chain.from_iterable(pieces))


def stream_unlabelled(task: Task, source: str) -> tuple[str, Iterator[list[Example]]]:
    """The examples of `read_unlabelled`, at most `PIECE` at a time; all at once where a reader
    needs the whole file. A file is read to its end first, so that its mistakes are reported at
    once.
    """
    file = Path(source)
    if source == "-":
        lines = enumerate(read_texts(None, source)[1], 1)
        pieces = _cut(_parse_lines(task, "standard input", lines))
        first = _need_some(next(pieces, []), "standard input")
        return "stdin", chain([first], pieces)
    if not file.exists():
        near = find_near(file, folders=False)
        fix = spell_setting("input", near) if near else "input=<an existing file>"
        raise DataError("no such file", file=file, fix=fix)
    name = file.name.partition(".")[0]
    if kind_of(file) not in (*NAMED, *getattr(task.reader, "kinds", ())):
        return name, _cut_file(lambda: _parse_lines(task, file, need_lines(file)), file)
    if field := _find_texts(task, file):
        return name, _cut_file(lambda: _parse_texts(task, file, field), file)
    columns = {
        role: column
        for role, column in task.columns.items()
        if role not in ("label", "labels", "clusters", "id", SHARES)
    }
    whole = columns.get("bundle") is not None  # whose rows may stand anywhere
    if whole or task.splits.stream_file(file, columns) is None:
        return name, iter([_need_some(task.splits.read_file(file, columns, labelled=False), file)])
    return name, _cut_file(lambda: task.splits.stream_file(file, columns) or iter([]), file)


def _find_texts(task: Task, file: Path) -> str:
    """The column of texts in a table, for a task that reads words: each is cut as a new line is;
    "" for a table whose cells are words.
    """
    tokens = task.columns.get("tokens")
    named = isinstance(tokens, str)
    if tokens is None or kind_of(file) in JSON or (named and task.decided.get("words") != TEXT):
        return ""
    field = str(tokens) if named else TEXT
    try:
        _, names = next(named_rows(file), (0, {}))
    except DataError:  # the file is no table
        return ""
    # the first line of a column file is a word with its tag
    is_tagged = any(name in names for name in task.label_names or ())
    return field if field in names and not is_tagged else ""


def _parse_texts(task: Task, file: Path, field: str) -> Iterator[Example]:
    for place, (line, row) in enumerate(named_rows(file), 1):
        yield replace(task.parse(str(row[field] or ""), place), place=f"{file}:{line}")


def _cut_file(open_file: Callable[[], Iterator[Example]], file: Path) -> Iterator[list[Example]]:
    stream = open_file()
    first = list(islice(stream, PIECE))
    deque(stream, maxlen=0)
    yield _need_some(first, file)
    if len(first) == PIECE:
        yield from _cut(islice(open_file(), PIECE, None))


def _cut(stream: Iterator[Example]) -> Iterator[list[Example]]:
    while piece := list(islice(stream, PIECE)):
        yield piece


def _need_some(examples: list[Example], file: object) -> list[Example]:
    if not examples:
        raise DataError("there is no text to label", file=file)
    return examples


def _parse_lines(task: Task, file: object, lines: Iterable[tuple[int, str]]) -> Iterator[Example]:
    for number, line in lines:
        try:
            yield task.parse(line, number)
        except ValueError as error:
            raise DataError(str(error), file=file, line=number) from error
