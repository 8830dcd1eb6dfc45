"""Texts without labels, that a task reads from a table, from lines, or from standard input."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import WARN, remark
from plmctl.storage.atomic import is_stream, write_text
from plmctl.storage.paths import find_near
from plmctl.tasks.predictions import NAMED
from plmctl.tasks.readers.span_rows import FIELDS, TEXT
from plmctl.tasks.readers.tables import NAME, SHARES
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.text.inputs import need_lines, read_stream
from plmctl.text.live import LiveInput
from plmctl.text.tabular import (
    JSON,
    OBJECTS,
    cells_of,
    find_object,
    kind_of,
    named_rows,
    objects_in,
    objects_of,
)

STREAM = "standard input"  # its name in messages
PIECE = 2_000  # examples that are read, answered and written together


class ExamplePieces(Iterator[list[Example]]):
    """Examples, at most `PIECE` at a time.

    Args:
        open_texts: Opens the texts at their beginning.
        total: The number of examples; None of a stream, which can be read once.
        ready: Whether the next example can be read without waiting; else a piece ends.
        own: The columns of the user by the line of an example, for a stream.
    """

    def __init__(
        self,
        open_texts: Callable[[], Iterator[Example]],
        total: int | None = None,
        ready: Callable[[], bool] = lambda: True,
        own: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        self.total, self.own = total, {} if own is None else own
        self._open, self._ready = open_texts, ready
        self._pieces = self._cut(0)

    def __next__(self) -> list[Example]:
        return next(self._pieces)

    @property
    def several(self) -> bool:
        """Whether these are the examples of a file with more than one piece."""
        return self.total is not None and self.total > PIECE

    def skip(self, count: int) -> None:
        """Continue behind the first `count` examples."""
        self._pieces = self._cut(count)

    def _cut(self, begin: int) -> Iterator[list[Example]]:
        piece: list[Example] = []
        stream = islice(self._open(), begin, None)
        while True:
            try:
                example = next(stream, None)
            except DataError:  # the lines before it are answered
                if piece and self.total is None:
                    yield piece
                raise
            if example is not None:
                piece.append(example)
            if piece and (example is None or len(piece) >= PIECE or not self._ready()):
                yield piece
                piece = []
            if example is None:
                return


def read_unlabelled(task: Task, source: str) -> tuple[str, list[Example]]:
    """(the name for its predictions, the examples) of a new file. It is a JSON or CSV table by the
    task's columns, a file of a kind of its reader, or a file of lines. `-` is standard input.
    """
    name, pieces = stream_unlabelled(task, source)
    return name, list(chain.from_iterable(pieces))


def stream_unlabelled(task: Task, source: str) -> tuple[str, ExamplePieces]:
    """The examples of `read_unlabelled` in pieces; all at once where a reader needs the whole file.
    A file is read to its end first, so that its mistakes are reported at once. Standard input and a
    pipe are read as their lines come.
    """
    file = Path(source)
    if source == "-":
        return "stdin", _open_stream(task)
    if not file.exists():
        near = find_near(file, folders=False)
        fix = spell_setting("input", near) if near else "input=<an existing file>"
        raise DataError("no such file", file=file, fix=fix)
    name = file.name.partition(".")[0]
    if kind_of(file) not in (*NAMED, *getattr(task.splits.reader, "kinds", ())):
        return name, _open_file(lambda: _parse_lines(task, file, need_lines(file)), file)
    if field := _find_texts(task, file):
        return name, _open_file(lambda: _parse_texts(task, file, field), file)
    columns = _find_columns(task)
    if task.splits.stream_file(file, columns) is None:
        examples = task.splits.read_file(file, columns, labelled=False)
        return name, _WholeFile(lambda: _need_some(iter(examples), file), len(examples))
    return name, _open_file(lambda: task.splits.stream_file(file, columns) or iter([]), file)


def _find_columns(task: Task) -> dict[str, Any]:
    """The columns of texts without labels, by their roles. Ids have a name there, or none: a number
    is that of the column in files with labels.
    """
    left_out = {"label", "labels", "clusters", SHARES, NAME}
    if isinstance(task.columns.get("id"), int):
        left_out.add("id")
    return {role: column for role, column in task.columns.items() if role not in left_out}


def _open_stream(task: Task) -> ExamplePieces:
    """The lines of standard input. They are JSON lines where the first that is not blank is an
    object with a column of the task, otherwise texts.
    """
    live = LiveInput()
    stream: Any = live
    lines = read_stream(stream, STREAM, cut=False)
    held = []
    for number, line in lines:
        held.append((number, line))
        if line.strip():
            break
    lines = chain(held, lines)
    row, names = find_object(held[-1][1]) if held else None, _name_columns(task)
    if row is not None and (not names or names & row.keys()):
        return _open_objects(task, lines, live)
    if row is not None:
        what = f"the first line is a JSON object without {' or '.join(sorted(names))}"
        remark(f"{STREAM}: {what}, so each line is a text", WARN)
    parsed = _parse_lines(task, STREAM, lines)
    return ExamplePieces(lambda: _need_some(parsed, STREAM), ready=live.ready)


def _name_columns(task: Task) -> set[str]:
    """The names that the columns of a task have in JSON: where a column is a number, its role."""
    names: set[str] = set()
    for role, column in _find_columns(task).items():
        listed = isinstance(column, Sequence) and not isinstance(column, str)
        several = column if listed else [column]
        names |= {role if isinstance(name, int) else name for name in several if name is not None}
    return names - {task.columns.get("id")}


def _open_objects(task: Task, lines: Iterator[tuple[int, str]], live: LiveInput) -> ExamplePieces:
    """The JSON lines of a stream; all at once where the reader, or the task, needs them."""
    own: dict[str, dict[str, Any]] = {}

    def keep() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, row in objects_in(lines, STREAM):
            own[f"{STREAM}:{number}"] = row
            yield number, row

    columns = _find_columns(task)
    examples = task.splits.stream_objects(keep(), Path(STREAM), columns)
    if examples is not None:
        return ExamplePieces(partial(iter, examples), ready=live.ready, own=own)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stream.jsonl"
        texts: dict[int, str] = dict(lines)
        write_text(file, "".join(f"{text}\n" for text in texts.values()))
        try:
            field = _find_texts(task, file)
            read = (
                list(_parse_texts(task, file, field))
                if field
                else task.splits.read_file(file, columns, labelled=False)
            )
        except DataError as error:
            raise DataError(str(error).replace(str(file), STREAM)) from None
    places = [each.place.replace(str(file), STREAM) for each in read]
    read = [replace(each, place=place) for each, place in zip(read, places, strict=True)]
    found = ((f"{STREAM}:{number}", find_object(text)) for number, text in texts.items())
    own |= {place: row for place, row in found if row is not None}
    return _WholeFile(partial(iter, read), own=own)


class _WholeFile(ExamplePieces):
    """One piece, of any length."""

    several = False

    def _cut(self, begin: int) -> Iterator[list[Example]]:
        yield list(islice(self._open(), begin, None))


def _find_texts(task: Task, file: Path) -> str:
    """The column of texts in a table, for a task that reads words: each is cut as a new line is;
    "" for a table whose cells are words, or that has their tags.
    """
    tokens, tags = task.columns.get("tokens"), task.columns.get("tags")
    named, is_text = isinstance(tokens, str), task.decided.get("words") == TEXT
    if tokens is None or (kind_of(file) in JSON and (is_text or not named)):
        return ""
    field, names = str(tokens) if named else TEXT, dict[Any, Any]()
    try:
        if kind_of(file) in OBJECTS:
            _, names = next(objects_of(file), (0, names))
        else:
            _, cells = next(cells_of(file), (0, []))
            names = dict.fromkeys(cells, "")
    except DataError:  # the file is no table
        return ""
    # the first line of a column file is a word with its tag
    is_tagged = any(name in names for name in task.label_names or ())
    is_tagged |= named and not is_text and (tags in names or not names.keys().isdisjoint(FIELDS))
    return field if isinstance(names.get(field), str) and not is_tagged else ""


def _parse_texts(task: Task, file: Path, field: str) -> Iterator[Example]:
    for place, (line, row) in enumerate(named_rows(file), 1):
        yield replace(task.parse(str(row[field] or ""), place), place=f"{file}:{line}")


def _open_file(open_file: Callable[[], Iterator[Example]], file: Path) -> ExamplePieces:
    def read() -> Iterator[Example]:
        return _need_some(open_file(), file)

    return ExamplePieces(read, None if is_stream(file) else sum(1 for _ in read()))


def _need_some(examples: Iterator[Example], file: object) -> Iterator[Example]:
    """The examples; DataError without any."""
    first = next(examples, None)
    if first is None:
        raise DataError("there is no text to label", file=file)
    yield first
    yield from examples


def _parse_lines(task: Task, file: object, lines: Iterable[tuple[int, str]]) -> Iterator[Example]:
    for number, line in lines:
        try:
            yield task.parse(line, number)
        except ValueError as error:
            fix = "two texts with a tab between, as printf 'one\\ttwo\\n' writes them"
            fix = fix if task.columns.get("text2") is not None else ""
            raise DataError(str(error), file=file, line=number, fix=fix) from error
