"""A labelled table as it stands in its file, whose rows can be written again with other texts in
them.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.tasks import files
from plmctl.tasks.base import Task
from plmctl.tasks.tables import Column, Table

TEXTS = ("text", "text2")  # the columns that are read


@dataclass(frozen=True)
class Sheet:
    """Rows of one file: lists of cells under `header`, or JSON objects; `places` says where each
    text of a row stands.
    """

    kind: str  # of the file: .tsv, .csv, .jsonl
    header: list[str] | None
    rows: list[Any]
    places: Mapping[str, Any]

    @classmethod
    def read(cls, reader: Table, file: Path, columns: Mapping[str, Column]) -> Sheet:
        """The training file of a task; DataError for whatever the task itself would refuse."""
        given = {role: column for role, column in columns.items() if column is not None}
        kind = files.suffix(file)
        reader.read_file(file, given, header=reader.header)
        if kind in (".jsonl", ".json"):
            rows = [json.loads(line) for _, line in files.lines(file) if line.strip()]
            return cls(kind, None, rows, {role: given[role] for role in TEXTS if role in given})
        header, found, places = reader.cells(file, given, header=reader.header)
        return cls(
            kind,
            header,
            [cells for _, cells in found],
            {role: places[role] for role in TEXTS if role in places},
        )

    @classmethod
    def of(cls, task: Task, split: str) -> Sheet | None:
        """That of `split`; None for a task whose examples are no texts in columns."""
        if type(task.reader) is not Table or "text" not in task.columns:
            return None
        reader = task.reader
        return cls.read(
            reader,
            files.need(task.path, split, reader.splits[split], folder=reader.folder),
            task.columns,
        )

    def texts(self, row: Any) -> dict[str, str]:
        """The texts of a row by role; none of one that is too short, which training passes over."""
        try:
            return {role: str(row[place]) for role, place in self.places.items()}
        except IndexError:
            return {}

    def tagged(self, row: Any) -> dict[str, list[tuple[int, int]]]:
        """None of the words has a tag."""
        return {}

    def line(self, row: Any, texts: Mapping[str, str] | None = None) -> str:
        """The row as the file has it, with these texts in place of its own."""
        changed = row.copy()
        for role, text in (texts or {}).items():
            changed[self.places[role]] = text
        if isinstance(changed, dict):
            return json.dumps(changed, ensure_ascii=False) + "\n"
        if self.kind != ".csv":
            return "\t".join(changed) + "\n"
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerow(changed)
        return stream.getvalue()
