"""Tables whose rows have any number of labels: a list in JSON lines and Parquet, one cell
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import part_of
from plmctl.tasks.base import Example
from plmctl.tasks.column_settings import Column
from plmctl.tasks.label_text import spell_label
from plmctl.tasks.tables import Table


@part_of("reader")
class LabelTable(Table):
    """Reads a table as `Table` does; the label of an example is the list of its labels, which may
    be empty.

    `columns.labels` names their column: in JSON lines and Parquet a list of texts or numbers, or a
    text; in a cell or a text `separator` stands between two labels.
    """

    empty_labels = True
    label_setting = "labels"

    def __init__(
        self,
        *,
        splits: Mapping[str, Sequence[str]],
        separator: str = ",",
        header: bool | None = None,
        lenient: bool = False,
    ) -> None:
        super().__init__(splits=splits, header=header, lenient=lenient)
        if not separator:
            allowed = "what stands between two labels of a cell"
            raise ConfigError("task.reader.separator", separator, allowed, fix='separator=","')
        self.separator = separator

    def read_file(
        self,
        file: Path,
        columns: Mapping[str, Column],
        *,
        header: bool | None = None,
        labelled: bool = True,
    ) -> list[Example]:
        roles = {("label" if role == "labels" else role): name for role, name in columns.items()}
        examples = super().read_file(file, roles, header=header, labelled=labelled)
        return [
            example if example.label is None else replace(example, label=self._split(example))
            for example in examples
        ]

    def cell(self, role: str, value: Any) -> Any:
        if role == "label" and isinstance(value, list):
            if not all(isinstance(each, str | int | float) for each in value):
                raise ValueError("a list of other things than labels")
            return tuple(map(spell_label, value))
        return super().cell(role, value)

    def _split(self, example: Example) -> list[str]:
        """The labels of an example; DataError for one without a name."""
        label = example.label
        if isinstance(label, str):
            parts = label.split(self.separator) if label.strip() else []
            label = [part.strip() for part in parts]
        if "" in label:
            shown = self.separator.join(label)
            raise DataError(
                f"a label without a name in {shown[:80]!r}",
                file=example.place,
                fix=f"a label on both sides of {self.separator!r}, or task.reader.separator=...",
            )
        return list(dict.fromkeys(label))
