"""GLUE's and SuperGLUE's diagnostics as examples, with the phenomena that each one shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.text.tabular import cells_of, kind_of, objects_of

# the kinds of phenomena, which are columns of the table (Wang et al., 2019, arXiv:1804.07461, table
# 2), and their names as fields of JSON
KINDS = ("Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge")


@part_of("reader")
class Diagnostics(Table):
    """Pairs of sentences, whose slices are kinds of phenomena (`Logic`) and the phenomena
    themselves (`Logic: Negation`); several of one kind stand with `;` between them.

    Fields of JSON lines have the same names in lower case, with `-` or `_` for the space.
    """

    def read_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> list[Example]:
        examples = super().read_file(file, columns, header=header, labelled=labelled)
        if not labelled:
            return examples
        cells = _read_cells(file)
        return [replace(e, slices=_list_slices(cells[e.place])) for e in examples]


def _read_cells(file: Path) -> dict[str, dict[str, str]]:
    """{file:line: {kind: its cell}}."""
    if kind_of(file) in (".jsonl", ".json"):
        rows = {f"{file}:{n}": row for n, row in objects_of(file)}
        return {
            place: {_plain(name): str(row[name] or "") for name in row}
            for place, row in rows.items()
        }
    numbered = list(cells_of(file))
    names = [_plain(name) for name in numbered[0][1]]
    if missing := [kind for kind in KINDS if _plain(kind) not in names]:
        fix = "diagnostic-full.tsv, as it is distributed"
        raise DataError(f"no column {', '.join(missing)}", file=file, line=1, fix=fix)
    return {f"{file}:{n}": dict(zip(names, cells, strict=False)) for n, cells in numbered[1:]}


def _list_slices(cells: Mapping[str, str]) -> tuple[str, ...]:
    """("Logic", "Logic: Negation", ...) of the cells of one example."""
    slices: list[str] = []
    for kind in KINDS:
        parts = [part.strip() for part in cells.get(_plain(kind), "").split(";")]
        found = [part for part in parts if part]
        slices += [kind] * bool(found) + [f"{kind}: {part}" for part in found]
    return tuple(dict.fromkeys(slices))


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", " ").replace("-", " ")
