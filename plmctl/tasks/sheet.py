"""A labelled table as it stands in its file, whose rows can be written again with other texts in
them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.storage.formulas import guard
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Column
from plmctl.tasks.readers.tables import TEXTS, Table
from plmctl.tasks.task import Task
from plmctl.text.separators import COMMA
from plmctl.text.tabular import kind_of, objects_of, sign_of, spell_row


@dataclass(frozen=True)
class Sheet:
    """Rows of one file: lists of cells under `header`, or JSON objects; `positions` are the
    cells or fields of the texts in a row.
    """

    kind: str  # the kind of the file: .tsv, .csv, .jsonl
    header: list[str] | None
    rows: list[Any]
    positions: Mapping[str, Any]
    sign: str = COMMA  # between the cells of a .csv

    @classmethod
    def read(cls, reader: Table, file: Path, columns: Mapping[str, Column]) -> Sheet:
        """The training file of a task; DataError for whatever the task itself would refuse."""
        stated = {role: column for role, column in columns.items() if column is not None}
        kind = kind_of(file)
        reader.read_file(file, stated, header=reader.header)
        if kind in (".jsonl", ".json"):
            rows = [row for _, row in objects_of(file)]
            return cls(kind, None, rows, {role: stated[role] for role in TEXTS if role in stated})
        header, numbered, positions = reader.cells(file, stated, header=reader.header)
        return cls(
            kind,
            header,
            [cells for _, cells in numbered],
            {role: positions[role] for role in TEXTS if role in positions},
            sign_of(file),
        )

    @classmethod
    def of(cls, task: Task, split: str) -> Sheet | None:
        """The sheet of `split`; None for a task whose examples are not texts in columns."""
        if type(task.splits.reader) is not Table or "text" not in task.columns:
            return None
        reader = task.splits.reader
        return cls.read(
            reader,
            files.need(task.splits.path, split, reader.splits[split], folder=reader.folder),
            task.columns,
        )

    @property
    def head(self) -> str:
        """The line of the names of the columns; "" without one."""
        return "" if self.header is None else self.line(self.header)

    def texts(self, row: Any) -> dict[str, str]:
        """The texts of a row by role; empty for a row that is too short, which training skips."""
        try:
            return {role: str(row[place]) for role, place in self.positions.items()}
        except IndexError:
            return {}

    def find_tagged(self, row: Any) -> dict[str, list[tuple[int, int]]]:
        """Empty: the words of a table have no tags."""
        return {}

    def line(self, row: Any, texts: Mapping[str, str] | None = None) -> str:
        """The row in the layout of the file, with these texts instead of its own."""
        changed = row.copy()
        for role, text in (texts or {}).items():
            changed[self.positions[role]] = text
        if isinstance(changed, dict):
            return json.dumps(changed, ensure_ascii=False) + "\n"
        cells = [guard(cell) for cell in changed]  # readers of tables take the marks away again
        if self.kind != ".csv":
            return "\t".join(cells) + "\n"
        return f"{spell_row(cells, self.sign)}\n"
