"""Winograd schemas of SuperGLUE and CLUE as examples: a text with a noun and a pronoun, and
whether both are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import FileRecord, SplitFiles, read_records, require_labels
from plmctl.tasks.record import Example
from plmctl.text.letters import mark_class
from plmctl.text.sentences import CHINESE

SHOWN = (
    '{"text": "...", "target": {"span1_text": "Mark", "span1_index": 0, "span2_text": "He",'
    ' "span2_index": 13}, "label": false, "idx": 0}'
)
NAMES: Mapping[object, str] = {True: "True", False: "False"}  # as they are written in a submission
Unit = Literal["words", "characters"]
FIRST: dict[str, str] = {"words": "count words between spaces, from 0",
                         "characters": "count characters, from 0"}  # fmt: skip


class _Target(TypedDict):
    span1_text: str
    span1_index: int
    span2_text: str
    span2_index: int


class _Schema(TypedDict):
    text: str
    target: _Target
    label: NotRequired[bool | Literal["true", "false"] | None]
    idx: NotRequired[int]


@part_of("reader")
class WscFiles(SplitFiles):
    """JSON lines of SuperGLUE (Wang et al., 2019, arXiv:1905.00537) and of CLUEWSC2020 (Xu et al.,
    2020, arXiv:2004.05986), whose labels are the texts "true" and "false".

    A span may not begin at its index, as punctuation stands before the word or the count is wrong.
    Then it is the nearest occurrence of its text; `notes` counts these spans.

    Args:
        unit: The unit of an index, from 0: words between spaces (SuperGLUE) or characters (CLUE).
    """

    bare_test = True

    def __init__(
        self, *, splits: Mapping[str, Sequence[str]], folder: str = "", unit: Unit = "words"
    ) -> None:
        super().__init__(splits=splits, folder=folder)
        self.unit = unit
        self.notes: dict[str, str] = {}

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        records = read_records(file, _Schema, shown=SHOWN)
        made = [_example(record, self.unit) for record in records]
        moved = sum(moved for _, moved in made)
        if moved:
            self.notes[str(file)] = f"{moved} spans differ from the text at their index"
        return require_labels([example for example, _ in made], labelled)


def _example(record: FileRecord, unit: str) -> tuple[Example, int]:
    """An example, and how many of its spans do not stand where they should."""
    values = record.values
    text, target, label = values["text"], values["target"], values.get("label")
    found = [
        _find_span(text, target[f"{name}_text"], target[f"{name}_index"], record.place, unit)
        for name in ("span1", "span2")
    ]
    entities = [{"start": start, "end": end, "id": "", "type": ""} for (start, end), _ in found]
    example = Example(
        id=str(values.get("idx", record.number)),
        fields={"text": text, "entities": entities},
        label=NAMES.get(label, label),
        place=record.place,
    )
    return example, sum(moved for _, moved in found)


def _find_span(
    text: str, span: str, index: int, place: str, unit: str
) -> tuple[tuple[int, int], bool]:
    """The characters of `span`, and whether it does not begin at its index."""
    own = re.escape(span.strip())
    if unit == "words":
        starts = [match.start() for match in re.finditer(r"\S+", text)]
        own = rf"(?<!\w){own}(?![\w{mark_class()}])"
    else:
        starts = list(range(len(text)))
    if not 0 <= index < len(starts):
        where = f"{unit.removesuffix('s')} {index} of '{span}'"
        problem = f"{where} is outside of a text of {len(starts)} {unit}"
        chinese = unit == "words" and CHINESE.search(text)
        raise DataError(problem, file=place, fix="task=cluewsc2020" if chinese else FIRST[unit])
    begins = [match.start() for match in re.finditer(own, text, re.IGNORECASE)]
    if not begins or not span.strip():
        raise DataError(f"the text has no '{span}'", file=place, fix=SHOWN)
    start = min(begins, key=lambda begin: abs(begin - starts[index]))
    return (start, start + len(span.strip())), start != starts[index]
