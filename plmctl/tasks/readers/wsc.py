"""SuperGLUE's Winograd schemas as examples: a text with a noun and a pronoun, and whether both
are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers.split_files import FileRecord, SplitFiles, read_records, require_labels
from plmctl.tasks.record import Example
from plmctl.text.letters import mark_class

SHOWN = (
    '{"text": "...", "target": {"span1_text": "Mark", "span1_index": 0, "span2_text": "He",'
    ' "span2_index": 13}, "label": false, "idx": 0}'
)
NAMES = {True: "True", False: "False"}  # as they are written in a submission


class _Target(TypedDict):
    span1_text: str
    span1_index: int
    span2_text: str
    span2_index: int


class _Schema(TypedDict):
    text: str
    target: _Target
    label: NotRequired[bool | None]
    idx: NotRequired[int]


@part_of("reader")
class WscFiles(SplitFiles):
    """JSON lines of SuperGLUE (Wang et al., 2019, arXiv:1905.00537).

    An index counts words between spaces, from 0. A span may not begin with its word, as punctuation
    stands before it or the count is wrong. Then it is the nearest occurrence of its text; `notes`
    counts these spans.
    """

    def __init__(self, *, splits: Mapping[str, Sequence[str]], folder: str = "") -> None:
        super().__init__(splits=splits, folder=folder)
        self.notes: dict[str, str] = {}

    def read_file(
        self, file: Path, columns: Mapping[str, Any], *, labelled: bool = True
    ) -> list[Example]:
        made = [_example(record) for record in read_records(file, _Schema, shown=SHOWN)]
        moved = sum(moved for _, moved in made)
        if moved:
            self.notes[str(file)] = f"{moved} spans differ from the word at their index"
        return require_labels([example for example, _ in made], labelled)


def _example(record: FileRecord) -> tuple[Example, int]:
    """An example, and how many of its spans do not stand where they should."""
    values = record.values
    text, target, label = values["text"], values["target"], values.get("label")
    found = [
        _find_span(text, target[f"{name}_text"], target[f"{name}_index"], record.place)
        for name in ("span1", "span2")
    ]
    entities = [{"start": start, "end": end, "id": "", "type": ""} for (start, end), _ in found]
    example = Example(
        id=str(values.get("idx", record.number)),
        fields={"text": text, "entities": entities},
        label=None if label is None else NAMES[label],
        place=record.place,
    )
    return example, sum(moved for _, moved in found)


def _find_span(text: str, span: str, index: int, place: str) -> tuple[tuple[int, int], bool]:
    """The characters of `span`, and whether its word `index` does not begin with it."""
    words = [match.start() for match in re.finditer(r"\S+", text)]
    if not 0 <= index < len(words):
        problem = f"word {index} of '{span}' is outside of a text of {len(words)} words"
        raise DataError(problem, file=place, fix="count words between spaces, from 0")
    pattern = r"(?<!\w)" + re.escape(span.strip()) + rf"(?![\w{mark_class()}])"
    begins = [match.start() for match in re.finditer(pattern, text, re.IGNORECASE)]
    if not begins or not span.strip():
        raise DataError(f"the text has no '{span}'", file=place, fix=SHOWN)
    start = min(begins, key=lambda begin: abs(begin - words[index]))
    return (start, start + len(span.strip())), start != words[index]
