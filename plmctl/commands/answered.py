"""What `plmctl eval input=...` reads and writes: texts without labels, and beside each what the
model says of it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.commands.prompts import texts
from plmctl.core.errors import DataError
from plmctl.storage.atomic import write_text
from plmctl.storage.reading import parse_json
from plmctl.tasks import files
from plmctl.tasks.base import Example, Task
from plmctl.tasks.tables import rows_of

_NAMED = (".json", ".jsonl", ".csv", ".tsv")
TABLES = {".csv": ",", ".tsv": "\t"}  # and what stands between their cells
FILES = (*TABLES, ".jsonl")  # what `out` may end with to be one file
Row = dict[str, Any]


def unlabelled(task: Task, given: str) -> tuple[str, list[Example]]:
    """(what its predictions are called, the examples): a JSON or CSV table by the task's
    columns, else lines; -: stdin.
    """
    file = Path(given)
    if given == "-":
        name, found = (
            "stdin",
            list(_parsed(task, "standard input", enumerate(texts(None, given)[1], 1))),
        )
    elif not file.exists():
        raise DataError("no such file", file=file)
    elif files.suffix(file) not in _NAMED:
        name, found = file.name.partition(".")[0], list(_parsed(task, file, files.lines(file)))
    else:
        columns = {
            role: column for role, column in task.columns.items() if role not in ("label", "id")
        }
        name, found = (
            file.name.partition(".")[0],
            task.reader.read_file(file, columns, labelled=False),
        )
    if not found:
        raise DataError(
            "there is no text to label", file="standard input" if given == "-" else file
        )
    return name, found


def _parsed(task: Task, file: object, lines: Iterable[tuple[int, str]]) -> Iterator[Example]:
    for number, line in lines:
        try:
            yield task.parse(line, number)
        except ValueError as error:
            raise DataError(str(error), file=file, line=number) from error


def beside(
    given: str | None, examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]
) -> list[Row]:
    """Each prediction behind what the file `given` has of its example, or behind its texts; what
    is not known is left out.
    """
    known = _rows(Path(given), examples) if given not in (None, "-") else {}
    return [
        _row(known.get(e.place, e.fields), p) for e, p in zip(examples, predictions, strict=True)
    ]


def _row(own: Mapping[str, Any], prediction: Mapping[str, Any]) -> Row:
    row = {name: value for name, value in own.items() if name != "answers"}
    for name, value in prediction.items():
        same = name in row and (name == "id" or row[name] == value)
        if not (same or (name in ("gold", "golds") and not value)):
            row[f"predicted_{name}" if name in row else name] = value
    return row


def _rows(file: Path, examples: Sequence[Example]) -> dict[str, Row]:
    """{file:line: the columns of the user} of a table; nothing for lines."""
    if files.suffix(file) not in _NAMED:
        return {}
    if files.suffix(file) not in TABLES:
        return {
            f"{file}:{line}": parse_json(text) for line, text in files.lines(file) if text.strip()
        }
    rows = {f"{file}:{line}": cells for line, cells in rows_of(file)}
    first = next(iter(rows))
    named = first not in {example.place for example in examples}
    names = rows.pop(first) if named else [str(place) for place in range(len(rows[first]))]
    return {place: dict(zip(names, cells, strict=False)) for place, cells in rows.items()}


def write(file: Path, rows: Sequence[Row]) -> Path:
    """A table for .csv and .tsv, otherwise an object a line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix in TABLES:
        flat = [dict(_cells(row)) for row in rows]
        stream = io.StringIO()
        names = dict.fromkeys(name for row in flat for name in row)
        table = csv.DictWriter(
            stream, list(names), delimiter=TABLES[file.suffix], lineterminator="\n"
        )
        table.writeheader()
        table.writerows(flat)
        write_text(file, stream.getvalue())
    else:
        write_text(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return file


def _cells(row: Row, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """A cell for each value: mappings become columns of their own, words stand behind each
    other.
    """
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _cells(dict(value), f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)):
            plain = all(isinstance(item, str) and item and " " not in item for item in value)
            yield (
                f"{prefix}{name}",
                " ".join(value) if plain else json.dumps(value, ensure_ascii=False),
            )
        else:
            yield f"{prefix}{name}", value
