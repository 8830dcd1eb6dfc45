"""The rows of table files: tab-separated lines, CSV, JSON lines and Parquet, each with its line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.storage.formulas import unguard
from plmctl.storage.reading import parse_json_at
from plmctl.tasks.readers import files
from plmctl.text.bounds import longest_line
from plmctl.text.inputs import open_unpacked, read_rows
from plmctl.text.quotes import read_cells
from plmctl.text.separators import COMMA, divide_rows

PARQUET = ".parquet"
OBJECTS = (".jsonl", ".json", PARQUET)  # whose rows name their values
MARK = "\ufeff"  # before the first line: by it programs of Windows know UTF-8
Row = tuple[int, list[Any]]  # line number, cells


@dataclass(frozen=True)
class TableSpelling:
    """How a table is written: the sign between the cells of a .csv, what stands before its first
    line, and the end of each.
    """

    sign: str = COMMA
    start: str = ""
    end: str = "\n"


def objects_of(file: Path, fields: Sequence[str] = ()) -> Iterator[tuple[int, dict[Any, Any]]]:
    """(number of its line, its values by name) of every row of a file whose rows name them: JSON
    lines, and Parquet, of which at least `fields` are read, and all where there are none.
    """
    if files.suffix(file) == PARQUET:
        for line, row in read_rows(file, fields or [""]):  # one that is not there: all of them
            yield line, {name: _plain(value) for name, value in row.items()}
        return
    for line, text in files.lines(file):
        if not text.strip():
            continue
        row = parse_json_at(text, file=file, line=line)
        if not isinstance(row, dict):
            raise DataError(
                f"a JSON object is needed on each line, found {type(row).__name__}",
                file=file,
                line=line,
                fix="one {...} a line, not one list of them",
            )
        yield line, row


def _plain(value: Any) -> Any:
    """A value of Parquet as JSON has it: times and the like become texts."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | dict | None) else str(value)


def rows_of(file: Path, *, lenient: bool = False) -> Iterator[Row]:
    """(number of its last line, its cells) of every row of a table, by what its name ends in;
    `lenient`: a quote that seems to be left open is said, and no error.
    """
    csv_kind = files.suffix(file) == ".csv"
    for number, cells in csv_rows(file, lenient=lenient) if csv_kind else _tab_rows(file):
        yield number, [unguard(cell) for cell in cells]


def show_row(file: Path, cells: Sequence[str]) -> str:
    """A row as it stands in a file of this name."""
    return spell_row(cells, sign_of(file)) if files.suffix(file) == ".csv" else "\t".join(cells)


def spell_row(cells: Sequence[Any], sign: str = COMMA) -> str:
    """A row of a CSV file, without its end, with `sign` between its cells; one with a comma in it
    is in quotes, whatever the sign, so that nobody takes the comma for it.
    """
    texts = ("" if cell is None else str(cell) for cell in cells)
    return sign.join(_quote(text, sign) for text in texts) or '""'


def _quote(text: str, sign: str) -> str:
    needed = any(mark in text for mark in (sign, COMMA, '"', "\n", "\r"))
    return '"{}"'.format(text.replace('"', '""')) if needed else text


def csv_rows(file: Path, *, lenient: bool = False) -> Iterator[Row]:
    """(number of its last line, its cells) of every row that is not empty."""
    lines, sign = _divide(file)
    return read_cells(file, lines, sign, lenient=lenient)


def sign_of(file: Path) -> str:
    """What stands between the cells of a CSV file; a comma for a file of another kind."""
    return _divide(file)[1] if files.suffix(file) == ".csv" else COMMA


def spelling_of(file: Path) -> TableSpelling:
    """How a table is written; the usual of a file of another kind."""
    if files.suffix(file) not in (".csv", ".tsv"):
        return TableSpelling()
    with open_unpacked(file) as stream:
        first = stream.readline(longest_line())
    start = MARK if first.startswith(MARK.encode()) else ""
    return TableSpelling(sign_of(file), start, "\r\n" if first.endswith(b"\r\n") else "\n")


def _divide(file: Path) -> tuple[Iterator[str], str]:
    csv.field_size_limit(longest_line())  # a cell may be as long as a document
    return divide_rows(file, (f"{line}\n" for _, line in files.lines(file)))


def _tab_rows(file: Path) -> Iterator[Row]:
    for number, line in files.lines(file):
        if line.strip():
            yield number, line.split("\t")
