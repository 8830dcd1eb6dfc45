"""Quotes of a file of comma-separated values that are left open, so that they swallow rows."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.core.spelling import spell_word
from plmctl.core.terminal import counted, remark_once

SAMPLE = 10_000  # rows: enough to know the values that come again in a column
MANY = 10  # lines of a cell that all divide as rows: no text does that by chance
LENIENT = "; to leave out such lines: task.reader.lenient=true"


@dataclass(frozen=True)
class LongCell:
    """A cell in quotes of several lines, or whose quote nothing closes."""

    line: int  # where its quote opens
    lines: list[list[str]]  # lines of the cell, divided at the separator
    before: int  # cells before it in its row
    after: int  # cells behind it
    behind: str  # text behind the closing quote, where the next separator should be
    closed: bool

    def describe_break(self) -> str:
        """A description of its wrong quotes; "" if they are right."""
        opens, length = "the quote that opens here", self.describe_length()
        if not self.closed:
            return f"{opens} is not closed" + (f" in {length}" if self.lines[1:-1] else "")
        return f"{opens} closes after {length}, before {self.behind[:40]!r}" if self.behind else ""

    def describe_length(self) -> str:
        """The number of its lines; the end of the file is no line."""
        return counted(len(self.lines) - (not self.closed and self.lines[-1] == [""]), "line")

    def describe_fix(self) -> str:
        """The mend of its quote."""
        return f"close the quote of line {self.line}, or double it where it belongs to the text"

    def describe_rows(self, rows: Sequence[Sequence[str]]) -> str:
        """A description of its lines where they look like rows of a table with `rows`; else ""."""
        if not rows or not self.looks_like_rows(len(rows[0]), rows):
            return ""
        holds = f"the quote that opens here holds {self.describe_length()}"
        return f"{holds} that look like rows of the table"

    def looks_like_rows(self, width: int, rows: Sequence[Sequence[str]]) -> bool:
        """Whether its lines are rows of a table of `width` columns. Each line has as many cells,
        where the first and the last include the text around the cell. In some column most of them
        are values that several of `rows` have; or the cell has `MANY` such lines.
        """
        first, *inner, last = self.lines
        lengths = [self.before + len(first), *map(len, inner), len(last) + self.after]
        if {*lengths} != {width}:
            return False
        swallowed = [[""] * (self.before + 1) + first[1:], *inner]
        columns = [Counter(cell.strip() for cell in column) for column in _transpose(rows)]
        return len(inner) >= MANY or any(
            2 * sum(counts[cell.strip()] > 1 for cell in cells if cell.strip()) >= len(cells)
            for counts, cells in zip(columns, _transpose(swallowed), strict=False)
        )


def _transpose(rows: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    return list(zip_longest(*rows, fillvalue=""))


def find_long_cells(lines: Sequence[str], first: int, separator: str) -> Iterator[LongCell]:
    """The cells of one row that go over an end of a line."""
    row, sign = "".join(lines), re.escape(separator)
    cell = re.compile(
        rf'"(?P<text>[^"]*(?:""[^"]*)*)(?P<end>"|\Z)(?P<behind>[^{sign}\n]*)|[^{sign}\n]*'
    )
    found, at = [], 0
    while at <= len(row):
        match = cell.match(row, at)
        assert match  # the match may be empty
        found.append(match)
        at = match.end() + 1
        if row[match.end() : at] != separator:
            break
    for number, match in enumerate(found):
        if "\n" in (text := match["text"] or ""):
            yield LongCell(
                first + row.count("\n", 0, match.start()),
                [line.split(separator) for line in text.split("\n")],
                number,
                len(found) - number - 1,
                match["behind"],
                bool(match["end"]),
            )


def read_cells(
    file: Path,
    lines: Iterable[str],
    separator: str,
    *,
    lenient: bool = False,
    otherwise: str = "",
    lost: list[int] | None = None,
) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, its cells) of every row that is not empty.

    Args:
        lenient: Whether the lines of an open quote are left out, with a warning, instead of raising
            an error.
        otherwise: The setting with which a user chooses that.
        lost: Receives the numbers of these lines.

    Raises:
        DataError: where a quote is left open, by the rest of its row or by the lines in the cell.
    """
    held: list[str] = []  # the lines of one row
    reader = csv.reader(hold(lines, held), delimiter=separator)
    rows: list[list[str]] = []
    long: list[LongCell] = []
    try:
        for cells in reader:
            first, count, broken = reader.line_num - len(held) + 1, len(held), False
            if count > 1 or "".join(held).count('"') % 2:
                for cell in find_long_cells(held, first, separator):
                    problem = cell.describe_break() or cell.describe_rows(rows)
                    if problem:
                        broken = True
                        # without the first row, which may be the header, the others have no names
                        own = range(first, first + count) if lenient and rows else None
                        _complain(file, cell, problem, own, otherwise if rows else "")
                    else:
                        long.append(cell)
            held.clear()
            if broken and lost is not None:
                lost += range(first, first + count)
            if cells and not broken:
                if len(rows) < SAMPLE:
                    rows.append(cells)
                yield first, cells
    except csv.Error as error:
        raise explain_break(file, held, reader.line_num, separator, error) from error
    for cell in long:  # rows behind a cell may show that it holds such rows, too
        if problem := cell.describe_rows(rows):
            _complain(file, cell, problem, range(0) if lenient else None, otherwise)


def read_strictly(
    file: Path, lines: Iterable[str], separator: str
) -> Iterator[tuple[int, list[str]]]:
    """The result of `read_cells`, with strict quotes and one row at a time, so that a row may be a
    document.

    Raises:
        DataError: The quotes of a row are wrong.
    """
    held: list[str] = []  # the lines of one row
    reader = csv.reader(hold(lines, held), delimiter=separator, strict=True)
    try:
        for cells in reader:
            first = reader.line_num - len(held) + 1
            held.clear()
            if cells:
                yield first, cells
    except csv.Error as error:
        raise explain_break(file, held, reader.line_num, separator, error) from error


def explain_break(
    file: Path, held: Sequence[str], last: int, separator: str, error: csv.Error
) -> DataError:
    """An explanation of a row that `csv` does not read.

    Args:
        held: its lines, of which `last` is the number of the last one.
    """
    first = last - len(held) + 1
    for cell in find_long_cells(held, first, separator):
        if problem := cell.describe_break():
            return DataError(
                f"{problem} ({error})", file=file, line=cell.line, fix=cell.describe_fix()
            )
    if "new-line character" in str(error):  # csv speaks of a mode of Python's `open`
        what = "lines end in several ways: here a carriage return stands inside of one"
        other = file.with_stem(f"{file.stem}-lines")
        fix = f"tr -s '\\r' '\\n' < {spell_word(str(file))} > {spell_word(str(other))}"
        return DataError(what, file=file, line=first, fix=f"{fix}, and name what it writes")
    fix = "quote cells with commas or quotes in them, and double those quotes"
    return DataError(f"not a table with commas ({error})", file=file, line=first, fix=fix)


def hold(lines: Iterable[str], held: list[str]) -> Iterator[str]:
    """The lines, which are in `held`, too, from the first that is not blank."""
    for line in lines:
        if held or line.strip():
            held.append(line)
        yield line


def _complain(file: Path, cell: LongCell, problem: str, lost: range | None, otherwise: str) -> None:
    """Warn that these lines are left out; DataError where it is None."""
    if lost is None:
        fix = cell.describe_fix() + otherwise
        raise DataError(problem, file=file, line=cell.line, fix=fix)
    lines = f"lines {lost[0]} to {lost[-1]} are" if len(lost) > 1 else "this line is"
    remark_once(f"{file}:{cell.line}: {problem}" + (f"; {lines} left out" if lost else ""))
