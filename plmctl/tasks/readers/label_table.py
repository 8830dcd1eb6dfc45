"""Tables whose rows have any number of labels: a list in JSON lines and Parquet, elsewhere one
cell, or a column for each label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers import label_lists
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.label_text import is_absent, spell_label
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.text.tabular import OBJECTS, kind_of, objects_of

ROLE = "labels"


@part_of("reader")
class LabelTable(Table):
    """Reads a table as `Table` does; the label of an example is the list of its labels, which may
    be empty.

    `columns.labels` names their column: in JSON lines and Parquet a list of texts or numbers, or a
    text; in a cell or a text `separator` stands between two labels, or they are a list in brackets,
    ['a', 'b']. Where all lists have one length and only 0 and 1, each position is a label, also
    without signs between, 010. A list of columns has a column for each label, with 1 or yes for an
    example that has it, 0 or no for others.
    """

    empty_labels = True
    label_setting = ROLE
    several: ClassVar[tuple[str, ...]] = (ROLE,)
    streams: ClassVar[bool] = True

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
            allowed = "the text between two labels of a cell"
            raise ConfigError("task.reader.separator", separator, allowed, fix='separator=","')
        self.separator = separator
        self.places: dict[str, int] = {}  # file -> labels of its lists of 0 and 1

    def read_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> list[Example]:
        if isinstance(columns.get(ROLE), list | tuple):
            return self._read_flags(file, columns, header=header, labelled=labelled)
        roles = {("label" if role == ROLE else role): name for role, name in columns.items()}
        examples = super().read_file(file, roles, header=header, labelled=labelled)
        texts = [e.label.strip() for e in examples if isinstance(e.label, str) and e.label.strip()]
        listed = bool(texts) and all(map(label_lists.is_bracketed, texts))
        hot = label_lists.are_digits(texts)
        split = _split_digits if hot else partial(self._split, listed=listed)
        examples = [e if e.label is None else replace(e, label=split(e)) for e in examples]
        return self._read_places(file, examples)

    def _read_flags(
        self, file: Path, columns: Columns, *, header: bool | None, labelled: bool
    ) -> list[Example]:
        """Examples whose labels are the columns that have a 1."""
        own = {f"label{number}": name for number, name in enumerate(columns[ROLE])}
        others = {role: name for role, name in columns.items() if role != ROLE}
        if not labelled and not self._has_columns(file, own.values()):
            return super().read_file(file, others, header=header, labelled=False)
        names = {role: str(name) for role, name in own.items()}
        examples = []
        for e in super().read_file(file, {**others, **own}, header=header, labelled=labelled):
            labels, wrong = label_lists.take_flags(e.fields, names)
            if wrong:
                raise DataError(
                    f"column {wrong} of task.columns.labels is neither 0 nor 1, neither yes nor no",
                    file=e.place,
                    fix="1 for a label of the text, 0 for the others",
                )
            fields = {role: text for role, text in e.fields.items() if role not in own}
            examples.append(replace(e, fields=fields, label=labels))
        return examples

    def _has_columns(self, file: Path, columns: Any) -> bool:
        """Whether the first row of a file has any of these."""
        if kind_of(file) in OBJECTS:
            return bool({*columns} & {*next(iter(objects_of(file)), (0, {}))[1]})
        names, rows, _ = self.cells(file, {})
        width = len(rows[0][1]) if rows else 0
        return any(name in (names or ()) or name in range(width) for name in columns)

    def _read_places(self, file: Path, examples: list[Example]) -> list[Example]:
        """Lists of 0 and 1 as the positions that have a 1, where the labels of a file are these."""
        lists = [example.label for example in examples if example.label is not None]
        size = label_lists.count_places(lists)
        if not size:
            return [
                e if e.label is None else replace(e, label=list(dict.fromkeys(e.label)))
                for e in examples
            ]
        self.places[str(file)] = size
        self.notes[str(file)] = label_lists.describe_places(size)
        return [
            e
            if e.label is None
            else replace(
                e, label=[str(n) for n, each in enumerate(e.label) if label_lists.read_flag(each)]
            )
            for e in examples
        ]

    def cell(self, role: str, value: Any) -> Any:
        if role == "label" and isinstance(value, list):
            if not all(isinstance(each, str | int | float) for each in value):
                raise ValueError("a list of other things than labels")
            if any(map(is_absent, value)):
                raise ValueError("a list with NaN in it")
            return tuple(map(spell_label, value))
        if role == "label" and isinstance(value, dict):
            labels, wrong = label_lists.take_flags(value, {name: name for name in value})
            if wrong:
                raise ValueError(f"an object whose {wrong} is neither 0 nor 1, neither yes nor no")
            return tuple(labels)
        return super().cell(role, value)

    def _split(self, example: Example, *, listed: bool) -> list[str]:
        """The labels of an example; DataError for one without a name."""
        label, fix = example.label, f"a label on both sides of {self.separator!r}"
        if isinstance(label, str) and listed and label.strip():
            found = label_lists.read_list(label)
            if found is None:
                what = f"{label[:80]!r} is no list of labels"
                raise DataError(what, file=example.place, fix="['a', 'b'], with commas between")
            label = found
        elif isinstance(label, str):
            parts = label.split(self.separator) if label.strip() else []
            label = [part.strip() for part in parts]
        if "" in label:
            shown = self.separator.join(label)
            fix = f"{fix}, or task.reader.separator=..."
            what = f"a label without a name in {shown[:80]!r}"
            raise DataError(what, file=example.place, fix=fix)
        return list(label)


def _split_digits(example: Example) -> list[str]:
    """The 0 or 1 of each label of an example: 010."""
    return label_lists.read_digits(str(example.label))
