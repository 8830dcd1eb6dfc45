"""Tables whose rows have several choices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers.column_settings import Column, Columns
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example


@part_of("reader")
class Choices(Table):
    """Tables and JSON lines: `columns.choices` is a list of columns, or the name of a field that
    holds a list.

    `columns.lead` stands at the start of every choice (SWAG's `sent2`). Empty choices at the end of
    a row are none.
    """

    leaves = "too few options, or an answer that is none of them"

    several = ("choices",)

    def read_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> list[Example]:
        choices = columns["choices"]
        many: dict[str, Column] = (
            {}
            if isinstance(choices, str | int)
            else {f"choice{n}": c for n, c in enumerate(choices)}
        )
        roles = {role: column for role, column in columns.items() if role != "choices"}
        read = super().read_file(
            file, roles | (many or {"choices": choices}), header=header, labelled=labelled
        )
        examples = []
        for example in read:
            try:
                examples.append(_with_choices(example, list(many)))
            except DataError:
                if not self.lenient:
                    raise
                self.skipped[str(file)] = self.skipped.get(str(file), 0) + 1
        return examples

    def cell(self, role: str, value: Any) -> Any:
        if (
            role == "choices"
            and isinstance(value, list)
            and value
            and all(isinstance(text, str | int | float) for text in value)
        ):
            return tuple(value)
        return super().cell(role, value)


def _with_choices(example: Example, many: list[str]) -> Example:
    fields = example.fields
    texts = fields["choices"] if not many else [fields[role] for role in many]
    choices = [
        str(text).strip() for text in ([texts] if isinstance(texts, str | int | float) else texts)
    ]
    while choices and not choices[-1]:
        choices.pop()
    if len(choices) < 2 or not all(choices):
        empty = "one of them is empty" if len(choices) > 1 else "two are needed at least"
        raise DataError(
            f"{len(choices)} choices: {empty}",
            file=example.place,
            # the columns exist, and this row has nothing in them
            fix="write its choices, or pass such rows over: task.reader.lenient=true"
            if len(many) > 1
            else "task.columns.choices=[<column>,<column>]",
        )
    lead = str(fields.get("lead", "")).strip()
    return replace(
        example,
        fields={
            "text": str(fields["text"]),
            "choices": [f"{lead} {choice}".lstrip() for choice in choices],
        },
    )
