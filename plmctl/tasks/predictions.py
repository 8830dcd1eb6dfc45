"""Predictions as files: beside the user's columns, by split, or in the layout of a leader
board.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.values import fit
from plmctl.storage.atomic import write_text
from plmctl.storage.paths import inside
from plmctl.storage.reading import parse_json, parse_json_at
from plmctl.tasks import files
from plmctl.tasks.base import Example
from plmctl.tasks.table_rows import PARQUET, objects_of, rows_of

NAMED = (".json", ".jsonl", ".csv", ".tsv", PARQUET)  # tables, whose columns have names
TABLES = {".csv": ",", ".tsv": "\t"}  # and what stands between their cells
FILES = (*TABLES, ".jsonl")  # what a file of predictions may end with
Row = dict[str, Any]
Prediction = TypeVar("Prediction")


def beside(
    source: str | None, examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]
) -> list[Row]:
    """Each prediction behind the columns that the file `source` has of its example, or behind its
    texts; unknown values are left out.
    """
    known = _rows(Path(source), examples) if source not in (None, "-") else {}
    return [
        _row(known.get(e.place, e.fields), p) for e, p in zip(examples, predictions, strict=True)
    ]


def describe_renamed(rows: Sequence[Row]) -> str:
    """Which columns of predictions have other names, since the user's own have theirs; else ""."""
    taken = [name for row in rows[:1] for name in row if f"predicted_{name}" in row]
    renamed = (
        f"'{name}' of the input is kept, the prediction is 'predicted_{name}'" for name in taken
    )
    return "; ".join(renamed)


def _row(own: Mapping[str, Any], prediction: Mapping[str, Any]) -> Row:
    row = {name: value for name, value in own.items() if name != "answers"}
    for name, value in prediction.items():
        same = name in row and (name == "id" or row[name] == value)
        if not (same or (name.startswith("gold") and not value)):
            row[f"predicted_{name}" if name in row else name] = value
    return row


def _rows(file: Path, examples: Sequence[Example]) -> dict[str, Row]:
    """{file:line: the columns of the user} of a table; nothing for lines of text, and for a JSON
    file that is one value.
    """
    if files.suffix(file) not in NAMED:
        return {}
    places = {example.place for example in examples}
    if files.suffix(file) not in TABLES:
        return read_columns(file, places)
    first = next(f"{file}:{line}" for line, _ in rows_of(file))
    return read_columns(file, named=first not in places)


def read_columns(
    file: Path, places: Collection[str] | None = None, *, named: bool = True
) -> dict[str, Row]:
    """{file:line: its columns} of a table; of a JSON file those at `places` alone; without
    `named`, the first line of a table is a row like the others.
    """
    if files.suffix(file) == PARQUET:
        return {f"{file}:{line}": row for line, row in objects_of(file)}
    if files.suffix(file) not in TABLES:
        texts = {f"{file}:{line}": text for line, text in files.lines(file)}
        return {
            place: parse_json(text)
            for place, text in texts.items()
            if text.strip() and (places is None or place in places)
        }
    rows = {f"{file}:{line}": cells for line, cells in rows_of(file)}
    first = next(iter(rows))
    names = rows.pop(first) if named else [str(place) for place in range(len(rows[first]))]
    return {place: dict(zip(names, cells, strict=False)) for place, cells in rows.items()}


def write_rows(file: Path, rows: Sequence[Row]) -> Path:
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


def write_predictions(folder: Path, split: str, predictions: Sequence[Mapping[str, Any]]) -> Path:
    """`<folder>/<split>.jsonl`, one prediction a line."""
    return write_rows(predictions_file(folder, split), [dict(own) for own in predictions])


def predictions_file(folder: Path, split: str) -> Path:
    """Where these are; ConfigError for a name that leads out of `folder`."""
    return inside(folder, f"{split}.jsonl", partial(ConfigError, "split", split))


def write_submission(folder: Path, name: str, content: str) -> Path:
    """A file for a leader board."""
    file = submission_file(folder, name)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(file, content)
    return file


def submission_file(folder: Path, name: str) -> Path:
    """Where that file is; ConfigError for a name that leads out of `folder`."""
    return inside(folder, name, partial(ConfigError, "task.submission", name))


def read_former(folder: Path, kind: type[Prediction], *, task: str, fix: str) -> list[Prediction]:
    """The predictions of all splits that a run of another task has left in `folder`, each with the
    keys of the TypedDict `kind`; DataError with file and line for anything else, or for none.
    """
    found: list[Prediction] = []
    for file in sorted(folder.glob("*.jsonl")):
        for number, text in files.lines(file):
            try:
                found.append(fit(parse_json_at(text, file=file, line=number), kind))
            except ValueError as error:
                problem = f"no prediction of task={task}: {error}"
                raise DataError(problem, file=file, line=number, fix=fix) from error
    if not found:
        raise DataError("no predictions are there", file=folder, fix=fix)
    return found
