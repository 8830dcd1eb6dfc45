"""COPA's files as examples: a premise, and which of two sentences is its cause or its effect."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NotRequired, TypedDict

from plmctl.core.parts import part_of
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import FileRecord, SplitFiles, read_records, require_labels
from plmctl.tasks.record import Example

SHOWN = (
    '{"premise": "...", "choice1": "...", "choice2": "...", "question": "cause", "label": 0,'
    ' "idx": 0}'
)
# as the questions are worded in the set itself (Roemmele et al., 2011)
ASKED = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}


class _Question(TypedDict):
    premise: str
    choice1: str
    choice2: str
    question: Literal["cause", "effect"]
    label: NotRequired[Literal[0, 1] | None]
    idx: NotRequired[int]


@part_of("reader")
class CopaFiles(SplitFiles):
    """JSON lines of SuperGLUE (Wang et al., 2019, arXiv:1905.00537). The text of an example is the
    premise with the question in words behind it.
    """

    bare_test = True

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        made = [_example(record) for record in read_records(file, _Question, shown=SHOWN)]
        return require_labels(made, labelled)


def _example(record: FileRecord) -> Example:
    values = record.values
    label = values.get("label")
    return Example(
        id=str(values.get("idx", record.number)),
        fields={
            "text": f"{values['premise']} {ASKED[values['question']]}",
            "choices": [values["choice1"], values["choice2"]],
        },
        label=None if label is None else str(label),
        place=record.place,
    )
