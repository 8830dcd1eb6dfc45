"""Tables of texts, labels, knowledge and predictions: lines with tabs, CSV, JSON lines and Parquet,
plain or packed. All have one rule for the separator of cells, and each row has its line.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, cast

from plmctl.core.errors import DataError, nearest
from plmctl.core.extras import require_library
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted, remark_once
from plmctl.storage.formulas import unguard
from plmctl.storage.reading import parse_json, parse_json_at
from plmctl.text.bounds import long_line_error, longest_line
from plmctl.text.inputs import Input, need_lines, open_unpacked, read_lines
from plmctl.text.quotes import read_cells, read_strictly
from plmctl.text.separators import COMMA, divide_rows, has_decimal_commas

PARQUET, CSV, TSV = ".parquet", ".csv", ".tsv"
JSON = (".jsonl", ".json", ".ndjson")
OBJECTS = (*JSON, PARQUET)  # whose rows name their values
PACKED = (".gz", ".zst")
LOOKED = 1000  # rows, in which numbers show the sign before their decimals
_NUMBER = re.compile(r"[-+]?\d[\d.]*(,\d+)?")  # with a comma, or without
_POINTED = re.compile(r"[-+]?\d+(\.\d+)?")
MARK = "\ufeff"  # before the first line: by it programs of Windows know UTF-8
Cells = tuple[int, list[Any]]  # line number, cells
Row = tuple[int, dict[Any, Any]]  # line number, values by name


@dataclass(frozen=True)
class TableSpelling:
    """The form of a table: the sign between the cells of a .csv, the mark before its first line,
    and the end of each line. `point` stands before the decimals of a number.
    """

    sign: str = COMMA
    start: str = ""
    end: str = "\n"
    point: str = "."

    def spell(self, cell: Any) -> Any:
        """A cell, a number with the table's sign before its decimals."""
        return str(cell).replace(".", self.point) if isinstance(cell, float) else cell


def kind_of(file: Path) -> str:
    """`.tsv` for `train.tsv` and `train.tsv.gz`."""
    name = file.name.lower()
    return Path(name.removesuffix(PACKED[0]).removesuffix(PACKED[1])).suffix


def cells_of(
    file: Path,
    *,
    lenient: bool = False,
    strict: bool = False,
    otherwise: str = "",
    lost: list[int] | None = None,
) -> Iterator[Cells]:
    """(number of its first line, its cells) of every row of a table that is not blank.

    Args:
        file: A .csv; tabs divide the cells of any other.
        lenient: Whether the lines of a quote that seems to be left open are left out, with a
            warning, instead of raising an error.
        strict: Whether the rows are documents. A .csv is then read one row at a time, with strict
            quotes, and a file without rows is no error.
        otherwise: The end of the fix of an open quote.
        lost: Receives the numbers of the lines that are left out.
    """
    for number, cells in _divide_cells(file, lenient, strict, otherwise, lost):
        yield number, [unguard(cell) for cell in cells]


def _divide_cells(
    file: Path, lenient: bool, strict: bool, otherwise: str, lost: list[int] | None
) -> Iterator[Cells]:
    if kind_of(file) != CSV:
        yield from _divide_tabs(file, _read_lines(file, strict))
        return
    texts, sign = _divide(file, strict)
    if strict:
        yield from read_strictly(file, texts, sign)
    else:
        yield from read_cells(file, texts, sign, lenient=lenient, otherwise=otherwise, lost=lost)


def _divide_tabs(file: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Cells]:
    """The cells between tabs, in which quotes mean nothing. In a row that has too many, tabs inside
    quotes are text where the row then has as many as the first one.
    """
    width = 0
    for number, line in lines:
        if not line.strip():
            continue
        cells = line.split("\t")
        width = width or len(cells)
        if len(cells) > width and line.count('"') and line.count('"') % 2 == 0:
            csv.field_size_limit(longest_line())
            joined = next(csv.reader([line], delimiter="\t"))
            if len(joined) == width:
                remark_once(f"{file}:{number}: the tab inside quotes is text")
                cells = joined
        yield number, cells


def _divide(file: Path, strict: bool = False) -> tuple[Iterator[str], str]:
    csv.field_size_limit(longest_line())  # a cell may be as long as a document
    return divide_rows(file, (f"{line}\n" for _, line in _read_lines(file, strict)))


def _read_lines(file: Path, strict: bool) -> Iterator[tuple[int, str]]:
    return read_lines(file, cut=False) if strict else need_lines(file)


def objects_of(file: Path, fields: Sequence[str] = (), *, strict: bool = False) -> Iterator[Row]:
    """(number of its line, its values by name) of every row of JSON lines or Parquet.

    Args:
        fields: The columns of Parquet that are read; none: all of them.
        strict: The rows are documents: a file without rows is no error.
    """
    if kind_of(file) == PARQUET:
        for line, row in _read_parquet(file, fields or [""]):  # one that is missing: all of them
            yield line, {name: _plain(value) for name, value in row.items()}
        return
    yield from objects_in(_read_lines(file, strict), file)


def objects_in(lines: Iterable[tuple[int, str]], file: object) -> Iterator[Row]:
    """(number, its values by name) of each numbered line of JSON that is not blank."""
    for line, text in lines:
        if not text.strip():
            continue
        row = parse_json_at(text, file=file, line=line, fix="one JSON object a line")
        if not isinstance(row, dict):
            problem = f"a JSON object is needed on each line, found {type(row).__name__}"
            fix = "one {...} a line, not one list of them"
            raise DataError(problem, file=file, line=line, fix=fix)
        yield line, row


def find_object(line: str) -> dict[Any, Any] | None:
    """The JSON object that a line is; None for another line."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        return cast(dict[Any, Any], parse_json(line))
    except ValueError:
        return None


def _plain(value: Any) -> Any:
    """A value of Parquet as JSON has it: times and the like become texts."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | dict | None) else str(value)


def named_rows(file: Path, fields: Sequence[str] = (), *, strict: bool = False) -> Iterator[Row]:
    """(number of its line, its values by name) of every row of a table of any kind; the first line
    of a .csv or .tsv names the cells of the others.

    Raises:
        DataError: A row has cells behind the last name, as a text without quotes that has commas.
    """
    if kind_of(file) in OBJECTS:
        yield from objects_of(file, fields, strict=strict)
        return
    rows = cells_of(file, strict=strict)
    _, names = next(rows, (0, []))
    for number, cells in rows:
        if any(cell.strip() for cell in cells[len(names) :]):
            raise refuse_longer(file, number, cells, names)
        yield number, dict.fromkeys(names) | dict(zip(names, cells, strict=False))


def refuse_longer(file: Path, line: int, cells: Sequence[str], names: Sequence[str]) -> DataError:
    """The error of a row with cells that have no name."""
    there = f"{counted(len(cells), 'column')} where the header names {len(names)}"
    fix = "put a text with commas or tabs into quotes, as CSV has them"
    return DataError(f"{there}: {show_row(file, cells)[:80]!r}", file=file, line=line, fix=fix)


def has_rows(source: Input) -> bool:
    """Whether the text is in fields of rows, and not in lines."""
    return not isinstance(source, Path) or kind_of(source) in (*OBJECTS, CSV)


def read_rows(source: Input, fields: Sequence[str]) -> Iterator[Row]:
    """Yield (number, fields) of each row, with at least the columns named in `fields`."""
    if not isinstance(source, Path):
        return source.rows()
    if kind_of(source) == PARQUET:
        return _read_parquet(source, fields)
    return named_rows(source, fields, strict=True)


def take_text(
    row: dict[str, Any], field: str, source: Input, number: int, setting: str = "data.field"
) -> str:
    """The text in a field of a row.

    Raises:
        DataError: if the row has no text; it names the other fields.
    """
    if isinstance(value := row.get(field), str):
        if len(value) > longest_line():
            raise long_line_error(source, number)
        return value
    names = ", ".join(f"'{name}'" for name in row) or "none"
    texts = [name for name in row if isinstance(row[name], str)]
    meant: object = max(texts, key=lambda name: len(row[name]), default="<name>")
    if setting == "data.fields":
        meant = [*texts, "<name>", "<name>"][:2]
    message = f"no text in a field '{field}' (this line has {names}){nearest(field, row)}"
    if field in row:
        message = (
            f"the field '{field}' holds {json.dumps(value, default=str)[:40]}, which is no text"
        )
    raise DataError(message, file=source, line=number, fix=spell_setting(setting, meant))


def _read_parquet(file: Path, fields: Sequence[str]) -> Iterator[Row]:
    parquet = require_library("pyarrow.parquet", "parquet", str(file))
    import pyarrow

    try:
        with parquet.ParquetFile(file, pre_buffer=False, memory_map=True) as table:
            known = table.schema_arrow.names
            columns, number = [name for name in fields if name in known], 0
            missing = len(columns) < len(set(fields))
            for batch in table.iter_batches(
                1 if missing else 256, columns=known if missing else columns
            ):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowException, OSError) as error:
        problem = f"not a parquet file, or a damaged one ({error})"
        raise DataError(problem, file=file, fix="copy or write it again") from error


def sign_of(file: Path) -> str:
    """The separator of the cells of a CSV file; a comma for a file of another kind."""
    return _divide(file)[1] if kind_of(file) == CSV else COMMA


def spelling_of(file: Path) -> TableSpelling:
    """The form of a table; the usual one of a file of another kind."""
    if kind_of(file) not in (CSV, TSV):
        return TableSpelling()
    with open_unpacked(file) as stream:
        first = stream.readline(longest_line())
    start = MARK if first.startswith(MARK.encode()) else ""
    end = "\r\n" if first.endswith(b"\r\n") else "\n"
    return TableSpelling(sign_of(file), start, end, _find_point(file))


def _find_point(file: Path) -> str:
    """The sign before decimals in the columns of a table: a comma where some column has it, and
    none has a point.
    """
    rows = [cells for _, cells in islice(cells_of(file, lenient=True), LOOKED)][1:]
    columns = [[cell for cell in own if cell] for own in zip_longest(*rows, fillvalue="")]
    numbers = [own for own in columns if own and all(map(_NUMBER.fullmatch, own))]
    pointed = [own for own in numbers if all(map(_POINTED.fullmatch, own))]
    # three digits behind a point may be a thousand's
    points = any(len(cell.partition(".")[2]) not in (0, 3) for own in pointed for cell in own)
    return COMMA if not points and any(map(has_decimal_commas, numbers)) else "."


def show_row(file: Path, cells: Sequence[str]) -> str:
    """A row as it stands in a file of this name."""
    return spell_row(cells, sign_of(file)) if kind_of(file) == CSV else "\t".join(cells)


def spell_row(cells: Sequence[Any], sign: str = COMMA) -> str:
    """A row of a CSV file, without its end, with `sign` between its cells; one with a comma in it
    is in quotes, whatever the sign, so that nobody takes the comma for it.
    """
    texts = ("" if cell is None else str(cell) for cell in cells)
    return sign.join(_quote(text, sign) for text in texts) or '""'


def _quote(text: str, sign: str) -> str:
    needed = any(mark in text for mark in (sign, COMMA, '"', "\n", "\r"))
    return '"{}"'.format(text.replace('"', '""')) if needed else text
