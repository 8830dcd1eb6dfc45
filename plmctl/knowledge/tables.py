"""Tables of knowledge (types, triples, dictionaries), and counts of their unusable lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.core.terminal import counted
from plmctl.text.tabular import cells_of

_EXAMPLES = 3


class Problems:
    """Unusable lines, counted by kind, with the first ones of each kind."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.places: dict[tuple[str, str], list[str]] = {}

    def note(self, noun: str, what: str, place: str) -> None:
        """Count something: a "redirect", "in a circle"."""
        self.counts[noun, what] += 1
        places = self.places.setdefault((noun, what), [])
        if len(places) < _EXAMPLES:
            places.append(place)

    def lines(self) -> list[str]:
        """A line for each kind."""
        return [
            f"{counted(count, kind[0])} {kind[1]}: {'; '.join(self.places[kind])}"
            + "; ..." * (count > _EXAMPLES)
            for kind, count in self.counts.items()
        ]


def read_table(
    file: Path, columns: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[tuple[int, list[str]]]:
    """(line, cells in the order of `columns` and `optional`) of a table; empty lines are left out.

    A first line that has the names of columns, and nothing else, says their order.

    Args:
        file: has tabs between its columns, a .csv commas, or what else divides all its rows.
        optional: The names of the columns that may follow them.

    Raises:
        DataError: naming the first line with fewer columns.
    """
    order: list[int] | None = None
    for at, (number, cells) in enumerate(cells_of(file)):
        cells = [cell.strip() for cell in cells]
        if at == 0 and (order := _read_header(cells, columns, optional)):
            continue
        needed = len(columns) if order is None else 1 + max(order)
        if len(cells) < needed:
            names = ", ".join([*columns, *optional])
            what = f"{counted(len(cells), 'column')}, not {needed}: {names}"
            fix = "put tabs between the columns, or commas in a file that ends with .csv"
            raise DataError(what, file=file, line=number, fix=fix)
        yield number, cells if order is None else [cells[place] for place in order]


def _read_header(
    cells: Sequence[str], columns: Sequence[str], optional: Sequence[str]
) -> list[int] | None:
    """Where the columns stand, by a line of their names; None for another line."""
    stated = [cell.lower() for cell in cells]
    if len({*stated}) < len(stated) or not {*columns} <= {*stated} <= {*columns, *optional}:
        return None
    return [stated.index(name) for name in (*columns, *optional) if name in stated]


def read_types(
    file: Path, called: Mapping[str, str]
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """The types of each name, of a table of name and type, and the first line of each type.

    Args:
        called: The names of the entities that the table calls by an id.
    """
    found: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    for number, (name, kind, *_rest) in read_table(file, ("name", "type")):
        name = called.get(name, name)
        if kind and kind not in found.setdefault(name, []):
            found[name].append(kind)
            lines.setdefault(kind, number)
    return found, lines


def read_aliases(file: Path, problems: Problems) -> Iterator[tuple[str, str, int]]:
    """(alias, name, count) of a table with the columns alias, name of its meaning and, if known,
    count.

    Args:
        problems: counts lines without alias or name.
    """
    for number, (alias, name, *rest) in read_table(file, ("alias", "name"), ("count",)):
        count = (rest[0] if rest else "") or "1"
        if not count.isdigit():
            fix = "one alias a line; a third column says how often it means this: a whole number"
            raise DataError(f"{count!r} is no number", file=file, line=number, fix=fix)
        if alias and name:
            yield alias, name, int(count)
        else:
            problems.note("line", "without an alias or a name", f"{file}:{number}")


def find_lonely(types: Mapping[str, list[str]], names: Mapping[str, object]) -> list[str]:
    """Types of a table of which no member is known."""
    all_of_them = dict.fromkeys(kind for each in types.values() for kind in each)
    used = {kind for name, each in types.items() if name in names for kind in each}
    return [kind for kind in all_of_them if kind not in used]
