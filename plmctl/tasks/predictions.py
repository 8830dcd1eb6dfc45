"""Predictions as files: next to the user's columns, by split, or in the layout of a leader
board.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, zip_longest
from operator import ne
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError
from plmctl.core.named_values import to_dict
from plmctl.core.terminal import counted, remark, tell
from plmctl.storage.atomic import is_stream, open_atomic, write_text
from plmctl.storage.formulas import guard
from plmctl.storage.gate import admit
from plmctl.storage.paths import inside
from plmctl.storage.reading import parse_json
from plmctl.tasks.record import Example, Examples, Predictions
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import PARQUET, TableSpelling, cells_of, kind_of, objects_of, spell_row

NAMED = (".json", ".jsonl", ".csv", ".tsv", PARQUET)  # tables, whose columns have names
TABLES = (".csv", ".tsv")
FILES = (*TABLES, ".jsonl")  # the suffixes of a file of predictions
BUNDLE = "bundle"  # the column of predictions by which rows are tested together
STDOUT = Path("-")  # stands for standard output
_BETWEEN = re.compile(r"\r\n|[\t\r\n]")  # cells and rows of .tsv
Row = dict[str, Any]


def beside(source: str | None, examples: Examples, predictions: Predictions) -> list[Row]:
    """Each prediction behind the columns that the file `source` has of its example, or behind its
    texts; unknown values are left out.
    """
    return list(join_columns(source, examples, predictions)[0])


def join_columns(
    source: str | None, examples: Examples, predictions: Predictions
) -> tuple[Sequence[Row], dict[str, str]]:
    """(the rows of `beside`, each made when it is read, {column of the predictions: its name in
    them}): one name for the whole table, so that the user's columns stand as they are, and those
    of the predictions in every row.
    """
    known = _rows(Path(source), examples) if source not in (None, "-") else {}

    def take(number: int) -> Row:
        example = examples[number]
        return _without_answers(known.get(example.place, example.fields))

    own = _MadeRows(len(examples), take)
    columns = PredictedColumns()
    for row, example, prediction in zip(own, examples, predictions, strict=True):
        columns.add(row, example, prediction)
    names = columns.name()
    return _MadeRows(len(own), lambda n: join(own[n], predictions[n], names)), names


def join(own: Row, prediction: Mapping[str, Any], names: Mapping[str, str]) -> Row:
    """The user's columns of an example with those of its prediction behind them, by `names`."""
    return {**own, **{new: prediction[old] for old, new in names.items() if old in prediction}}


class OwnColumns:
    """The columns of examples in the file `source`, or their texts. `join_columns` takes them, for
    pieces of examples in the order of the file.

    Args:
        source: The file, or "-".
        first: The first piece.
        streamed: The columns by the line of an example, for a stream; `take` removes them.
    """

    def __init__(
        self, source: str, first: Examples, streamed: dict[str, Row] | None = None
    ) -> None:
        self.streamed = {} if streamed is None else streamed
        self.rows: Iterator[tuple[str, Row]] = iter([])
        # the lines of the piece: a JSON file that is one value has no lines
        self.places: set[str] = set()
        if source != "-" and kind_of(file := Path(source)) in NAMED:
            named = kind_of(file) not in TABLES or has_names(file, first)
            self.rows = _stream_columns(file, named, lambda place: place in self.places)

    def take(self, piece: Examples) -> Iterator[Row]:
        """Yield those of each example."""
        self.places = {example.place for example in piece}
        for example in piece:
            own = (row for place, row in self.rows if place == example.place)
            texts = self.streamed.pop(example.place, example.fields)
            yield _without_answers(next(own, texts))


def _without_answers(columns: Mapping[str, Any]) -> Row:
    return {name: value for name, value in columns.items() if name != "answers"}


class _MadeRows(Sequence[Row]):
    """Rows that are made each time they are read, so that a table of any length takes no room."""

    def __init__(self, length: int, make: Callable[[int], Row]) -> None:
        self.length, self.make = length, make

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self.make(number) for number in range(self.length)[place]]
        return self.make(range(self.length)[place])  # raises IndexError at the end


def describe_renamed(names: Mapping[str, str]) -> str:
    """The columns of predictions that have other names, since the user's own have theirs;
    else "".
    """
    renamed = (
        f"'{old}' of the input is kept, the prediction is '{new}'"
        for old, new in names.items()
        if old != new
    )
    return "; ".join(renamed)


def describe_doubled(source: str | None, examples: Examples) -> str:
    """The columns of the table `source` that have a number behind their names in the output, since
    another one has the name; else "".
    """
    file = Path(source or "-")
    if kind_of(file) not in TABLES or not has_names(file, examples):
        return ""
    _, names = next(cells_of(file))
    pairs = zip(names, _tell_apart(names), strict=True)
    return "; ".join(f"'{old}' comes again: it is '{new}'" for old, new in pairs if old != new)


class PredictedColumns:
    """The names of the columns of predictions, found row by row."""

    def __init__(self) -> None:
        self.taken: dict[str, bool] = {}  # the user's columns: whether any has a value
        self.read: set[str] | None = None  # the fields that were read of every example
        self.found: dict[str, _Column] = {}

    def save(self) -> dict[str, Any]:
        """The names and columns so far, as JSON has them."""
        found = {name: vars(column) for name, column in self.found.items()}
        read = None if self.read is None else sorted(self.read)
        return {"taken": self.taken, "read": read, "found": found}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Go on behind rows of which this is saved."""
        self.taken = dict(saved["taken"])
        self.read = None if saved["read"] is None else {*saved["read"]}
        self.found = {name: _Column(**column) for name, column in saved["found"].items()}

    def add(self, own: Row, example: Example, prediction: Mapping[str, Any]) -> None:
        """A row more."""
        for name in prediction:
            if name not in self.found:
                self.found[name] = _Column(same=not self.taken.get(name, False))
        for name, column in self.found.items():
            column.add(own.get(name), prediction.get(name))
            told = "" if prediction.get(name) is None else prediction[name]
            column.repeats &= told in ("", *own.values())
        for name, value in own.items():
            self.taken[name] = self.taken.get(name, False) or value is not None
        self.read = {*example.fields} & (self.read if self.read is not None else {*example.fields})

    def name(self) -> dict[str, str]:
        """{column of the predictions: its name}, without what is unknown of all of them or repeats
        what was read. The bundle of texts without labels is a column of the user's.
        """
        labelled = any(name.startswith("gold") and own.known for name, own in self.found.items())
        groups = {name[:end] for name in self.taken for end in range(len(name)) if name[end] == "."}
        found: dict[str, str] = {}
        for name, column in self.found.items():
            if name.startswith("gold") and not column.known:
                continue
            if name == BUNDLE and column.repeats and not labelled:
                continue
            found[name] = name
            if name in self.taken or (name in groups and column.parts):
                if name == "id" or (name in (self.read or ()) and column.same):
                    del found[name]
                else:
                    found[name] = _choose_name(f"predicted_{name}", {*self.taken, *groups})
        return found


@dataclass
class _Column:
    """Whether each value of a column of predictions is that of the user's, any is known, and any
    has parts. `repeats`: each stands in some column of the user's.
    """

    same: bool
    known: bool = False
    parts: bool = False
    repeats: bool = True

    def add(self, own: Any, value: Any) -> None:
        self.same = self.same and bool(own == value)
        self.known = self.known or (value is not None and value not in ([], {}, ""))
        self.parts = self.parts or isinstance(value, Mapping)


def _choose_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it where it is taken."""
    free = (f"{name}_{number}" for number in count(2))
    return name if name not in taken else next(each for each in free if each not in taken)


def _tell_apart(names: Sequence[str]) -> list[str]:
    """The names of columns, with a number behind one that another has, too."""
    different: list[str] = []
    for name in names:
        different.append(_choose_name(name, different))
    return different


def _rows(file: Path, examples: Examples) -> dict[str, Row]:
    """{file:line: the columns of the user} of a table; nothing for lines of text, and for a JSON
    file that is one value.
    """
    if kind_of(file) not in NAMED:
        return {}
    if kind_of(file) not in TABLES:
        return read_columns(file, {example.place for example in examples})
    return read_columns(file, named=has_names(file, examples))


def has_names(file: Path, examples: Examples) -> bool:
    """Whether the first line of a table is none of its examples."""
    first = next(f"{file}:{line}" for line, _ in cells_of(file))
    return all(example.place != first for example in examples)


def read_columns(
    file: Path, places: Collection[str] | None = None, *, named: bool = True
) -> dict[str, Row]:
    """{file:line: its columns} of a table; of a JSON file those at `places` alone; without
    `named`, the first line of a table is a row like the others.
    """
    wanted = (lambda place: True) if places is None else {*places}.__contains__
    return dict(_stream_columns(file, named, wanted))


def _stream_columns(
    file: Path, named: bool, wanted: Callable[[str], bool] = lambda place: True
) -> Iterator[tuple[str, Row]]:
    """(file:line, its columns) of each row of a table, or of each wanted row of a JSON file."""
    if kind_of(file) == PARQUET:
        yield from ((f"{file}:{line}", row) for line, row in objects_of(file))
    elif kind_of(file) not in TABLES:
        for line, text in need_lines(file):
            if text.strip() and wanted(place := f"{file}:{line}"):
                yield place, parse_json(text)
    else:
        rows = cells_of(file, lenient=True)  # the reader has refused what the user did not allow
        first = next(rows)
        width = len(first[1])
        names = _tell_apart(first[1]) if named else [str(place) for place in range(width)]
        for line, cells in rows if named else chain([first], rows):
            yield f"{file}:{line}", dict(zip_longest(names, cells[: len(names)], fillvalue=""))


def write_rows(
    file: Path,
    rows: Collection[Row],
    *,
    spelling: TableSpelling | None = None,
    guarded: bool = True,
    known_as: Path | None = None,
) -> Path:
    """A table for .csv and .tsv, otherwise an object a line; standard output for "-".

    Args:
        rows: {column: value}.
        spelling: The spelling of a table; None: as usual.
        guarded: Whether a table has a ' before each text that a spreadsheet would run; a line says
            so.
        known_as: The path in messages, where the file gets another one later.
    """
    if file == STDOUT:
        for row in rows:
            tell(spell_json(row))
        return file
    if file.suffix in TABLES:
        how = spelling or TableSpelling()
        lines = _spell_table(known_as or file, rows, how, guarded)
        with open_atomic(file) as stream:
            stream.write(how.start)
            stream.writelines(f"{line}{how.end}" for line in lines)
    else:
        with open_atomic(file) as stream:
            stream.writelines(f"{spell_json(row)}\n" for row in rows)
    return file


def is_file(out: Path) -> bool:
    """Whether predictions are written to one file, not into a folder."""
    return out == STDOUT or (not out.is_dir() and (out.suffix in FILES or is_stream(out)))


def spell_json(row: Mapping[str, Any]) -> str:
    """A row as an object in one line; what only reads like a `dict` is one there."""
    return json.dumps(row, ensure_ascii=False, default=to_dict)


def _spell_table(
    file: Path, rows: Collection[Row], how: TableSpelling, guarded: bool
) -> Iterator[str]:
    """Yield the lines of a table, the names of its columns first; then say what was changed: texts
    with a ' before, and in .tsv, which has no quotes, tabs and ends of lines that are spaces.
    """
    names = list(dict.fromkeys(name for row in rows for name, _ in _cells(row)))
    each = ([own.get(name, "") for name in names] for own in map(dict, map(_cells, rows)))
    guards = spaces = 0
    for cells in chain([names], each):
        safe = [guard(cell) if isinstance(cell, str) else cell for cell in cells]
        if guarded:
            guards += sum(map(ne, cells, safe))
            cells = safe
        cells = [*map(how.spell, cells)]
        if file.suffix == ".csv":
            yield spell_row(cells, how.sign)
            continue
        texts = ["" if cell is None else str(cell) for cell in cells]
        flat = [_BETWEEN.sub(" ", text) for text in texts]
        spaces += sum(map(ne, texts, flat))
        yield "\t".join(flat)
    if guards:
        what = f"{counted(guards, 'cell')} that a spreadsheet would run (=, +, -, @ first)"
        remark(f"{file}: {what}: a ' stands before; guard_cells=false leaves it out")
    if spaces:
        what = f"{counted(spaces, 'cell')} with a tab or the end of a line in it"
        fix = "out=<file>.csv keeps them"
        remark(f"{file}: {what}, which .tsv has no sign for: a space stands there; {fix}")


def _cells(row: Row, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """A cell for each value: mappings become columns of their own, words stand behind each
    other.
    """
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _cells(to_dict(value), f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)):
            plain = all(isinstance(item, str) and item and " " not in item for item in value)
            yield (
                f"{prefix}{name}",
                " ".join(value) if plain else json.dumps(value, ensure_ascii=False),
            )
        else:
            yield f"{prefix}{name}", value


def write_predictions(folder: Path, split: str, predictions: Predictions) -> Path:
    """`<folder>/<split>.jsonl`, one prediction a line."""
    return write_rows(predictions_file(folder, split), [dict(own) for own in predictions])


def predictions_file(folder: Path, split: str) -> Path:
    """Where these are; ConfigError for a name that leads out of `folder`."""
    return inside(folder, f"{split}.jsonl", partial(ConfigError, "split", split))


def write_submission(folder: Path, name: str, content: str) -> Path:
    """A file for a leader board."""
    file = submission_file(folder, name)
    admit(folder).mkdir(parents=True, exist_ok=True)
    write_text(file, content)
    return file


def submission_file(folder: Path, name: str) -> Path:
    """Where that file is; ConfigError for a name that leads out of `folder`."""
    return inside(folder, name, partial(ConfigError, "task.submission", name))
