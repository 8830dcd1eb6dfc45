"""Tables with tabs that bring knowledge (types, triples, dictionaries), and the count of what in
them is not usable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.text.inputs import read_lines

_EXAMPLES = 3


class Problems:
    """What is not usable, counted by its kind, with the first places of each."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.places: dict[str, list[str]] = {}

    def note(self, what: str, place: str) -> None:
        """Count something."""
        self.counts[what] += 1
        places = self.places.setdefault(what, [])
        if len(places) < _EXAMPLES:
            places.append(place)

    def lines(self) -> list[str]:
        """A line for each kind."""
        return [
            f"{count:,} {what}: {'; '.join(self.places[what])}" + ("; ..." * (count > _EXAMPLES))
            for what, count in self.counts.items()
        ]


def read_table(file: Path, columns: int, meaning: str) -> Iterator[tuple[int, list[str]]]:
    """(line, columns) of a table; further columns and empty lines are left out.

    Raises:
        DataError: naming the first line with fewer columns.
    """
    for number, line in read_lines(file, cut=False):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.rstrip("\r\n").split("\t")]
        if len(parts) < columns:
            what = f"{len(parts)} columns, not {columns}: {meaning}"
            fix = "put tabs between the columns"
            raise DataError(what, file=file, line=number, fix=fix)
        yield number, parts


def read_types(file: Path, called: Mapping[str, str]) -> dict[str, list[str]]:
    """The types of each name, of a table of name and type.

    Args:
        file: the table.
        called: the names of those that the table calls by an id.
    """
    found: dict[str, list[str]] = {}
    for _, (name, kind, *_rest) in read_table(file, 2, "name, type"):
        name = called.get(name, name)
        if kind and kind not in found.setdefault(name, []):
            found[name].append(kind)
    return found


def read_aliases(file: Path, problems: Problems) -> Iterator[tuple[str, str, int]]:
    """(alias, name, count) of a table of alias, name of what it means and, if known, how often.

    Args:
        file: the table.
        problems: counts lines without alias or name.
    """
    for number, (alias, name, *rest) in read_table(file, 2, "alias, name of what it means"):
        count = rest[0] if rest else "1"
        if not count.isdigit():
            fix = "a third column is how often the alias means this: a whole number"
            raise DataError(f"{count!r} is no number", file=file, line=number, fix=fix)
        if alias and name:
            yield alias, name, int(count)
        else:
            problems.note("aliases or entities without a name", f"{file}:{number}")


def find_lonely(types: Mapping[str, list[str]], names: Mapping[str, object]) -> list[str]:
    """Types of a table of which no member is known."""
    all_of_them = dict.fromkeys(kind for each in types.values() for kind in each)
    used = {kind for name, each in types.items() if name in names for kind in each}
    return [kind for kind in all_of_them if kind not in used]
