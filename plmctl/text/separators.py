"""The separators of cells in a file of comma-separated values, which may be other than a comma."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain, islice
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.core.spelling import spell_word
from plmctl.core.terminal import remark

COMMA = ","
OTHERS = {";": "semicolons", "\t": "tabs", "|": "bars"}  # as programs for tables write them
LOOKED = 100  # lines
_SAID = set[tuple[Path, str]]()  # folders with the separator of tables in them, after a remark
FEW = 10  # rows: signs of a text divide fewer of them alike by chance
DIVIDING = re.compile(r"(?<!\d),\S|,[^\s\d]")  # no comma of prose, nor of a decimal number
BETWEEN_WORDS = re.compile(r"(?<!\d),|,(?!\d)")  # no comma of a decimal number
# a number with a comma before its decimals, and points behind thousands
DECIMAL = re.compile(r"[-+]?(?:\d+|\d{1,3}(?:\.\d{3})+),(\d+)")
# signs that people write between cells and that divide none, as patterns of re and of sed -E
WIDE = {"，": "，", "；": "；", "、": "、", "｜": "｜", COMMA: COMMA, "  ": "  +"}
NAMES = {
    "，": "the full-width comma ，",
    "；": "the full-width semicolon ；",
    "  ": "several spaces",
}
QUOTED = re.compile(r'"[^"]*("|$)')


def find_separator(lines: Sequence[str], *, whole: bool = True) -> str:
    """The sign that divides all rows, the first one among them, into as many cells, where it is
    the only one that does; else a comma, as where one stands in the first row without a space
    behind it. Signs in quotes divide nothing.

    Args:
        lines: the first ones, each with its end.
        whole: whether these are all; else the last row may go on.
    """
    counts = {}
    for sign in (COMMA, *OTHERS):
        try:
            rows = [row for row in csv.reader(lines, delimiter=sign) if row]
        except csv.Error:
            return COMMA
        counts[sign] = [len(row) for row in (rows if whole else rows[:-1])]
    fitting = [sign for sign in counts if len({*counts[sign]}) == 1 and counts[sign][0] > 1]
    divided = DIVIDING.search(_first_outside_quotes(lines))
    return fitting[0] if len(fitting) == 1 and not divided else COMMA


def _first_outside_quotes(lines: Sequence[str]) -> str:
    """The first line that is not empty, with "" for quoted text."""
    return QUOTED.sub('""', next((line for line in lines if line.strip()), ""))


def divide_rows(file: Path, lines: Iterator[str]) -> tuple[Iterator[str], str]:
    """The lines of a file, each with its end, and the separator of their cells; a separator other
    than a comma is printed.

    Raises:
        DataError: of few rows, where it may be a comma as well.
    """
    first = list(islice(lines, LOOKED))
    whole = len(first) < LOOKED
    separator = find_separator(first, whole=whole)
    if separator != COMMA:
        if whole:
            _refuse_chance(file, first, separator)
        _say(file, separator)
    return chain(first, lines), separator


def _refuse_chance(file: Path, lines: Sequence[str], sign: str) -> None:
    """DataError if few rows are divided by `sign`, and the first one has a comma, too. Rows between
    commas, of which some have too many, look the same.
    """
    rows = [row for row in csv.reader(lines, delimiter=sign) if row]
    if len(rows) < FEW and BETWEEN_WORDS.search(_first_outside_quotes(lines)):
        raise DataError(
            f"do {OTHERS[sign]} or commas stand between the cells? Both are in the first row, and"
            f" {len(rows)} rows are too few to decide",
            file=file,
            fix="put cells with commas in them into quotes, or name the columns in a first line",
        )


def _say(file: Path, separator: str) -> None:
    """Say it once for all tables of a folder."""
    if (file.parent, separator) not in _SAID:
        _SAID.add((file.parent, separator))
        remark(f"{file}: its cells stand between {OTHERS[separator]}")


def explain_uneven(lines: Sequence[str], wanted: Set[str]) -> tuple[str, str]:
    """(what is wrong, how to mend it) with a table whose first line names the columns between
    semicolons, tabs or bars, but a row has another number of cells; two empty texts for others.

    Args:
        lines: The first ones, each with its end.
    """
    for sign, name in OTHERS.items():
        rows = csv.reader(lines, delimiter=sign)
        names = next(rows, [])
        if len(names) < 2 or not wanted <= {*names}:
            continue
        with contextlib.suppress(csv.Error):
            for cells in rows:
                if len(cells) in (0, len(names)):
                    continue
                line, row = rows.line_num, sign.join(cells)[:60]
                what = f"its cells stand between {name}; the first line has {len(names)} of them,"
                if len(cells) > len(names):
                    fix = f"put the text of line {line} with {name} in it into quotes"
                else:
                    fix = f"write all {len(names)} cells of line {line}"
                return f"{what} and line {line} has {len(cells)}: {row!r}", fix
    return "", ""


def explain_undivided(
    file: Path, first: str, lines: Sequence[str], *, begins: bool = False
) -> tuple[str, str]:
    """(what is wrong, a command that mends it) with a table of one cell a line whose first line has
    signs that divide nothing; two empty texts where no such sign stands there.

    Args:
        begins: Whether the label stands before the text.
    """
    signs = [sign for sign in WIDE if sign != COMMA or not file.name.lower().endswith(".csv")]
    wide = next((sign for sign in signs if re.search(rf"\S{WIDE[sign]}\S", first)), "")
    if not wide or not all(re.search(WIDE[wide], each) for each in lines):
        return "", ""
    what = f"{NAMES.get(wide, wide)} in the first line divides no cells"
    if wide == COMMA:
        copy = spell_word(str(file.with_suffix(".csv")))
        return what, f"cp {spell_word(str(file))} {copy}  # then task.path={copy}"
    free = next((own for own in (COMMA, *OTHERS) if not any(own in each for each in lines)), ";")
    pattern, width = WIDE[wide], len(re.split(WIDE[wide], first))
    if not any(len(re.split(pattern, each)) > width for each in lines):
        change = f"s/{pattern}/{free}/g"
    elif width == 2:  # texts have such signs, and the label has none
        change = f"s/{pattern}/{free}/" if begins else f"s/(.*){pattern}/\\1{free}/"
    else:
        return what, "save it again as CSV, which puts a text with commas in it into quotes"
    new = spell_word(str(file.with_name(f"{file.name.partition('.')[0]}-cells.csv")))
    return what, f"sed -E '{change}' {spell_word(str(file))} > {new}  # then task.path={new}"


def has_decimal_commas(cells: Iterable[str]) -> bool:
    """Whether the numbers of a column have a comma before their decimals, such as 312,5 or 1.312,5.
    Then no other has a point, and not all have three decimals: 1,312 may be above a thousand.
    """
    clear = False
    for cell in cells:
        number = DECIMAL.fullmatch(cell.strip())
        if number is None and "." in cell:
            return False
        clear = clear or (number is not None and ("." in cell or len(number[1]) != 3))
    return clear
