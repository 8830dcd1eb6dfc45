"""Files of Word in Context (Pilehvar and Camacho-Collados, 2019) as examples: JSON lines with or
without the position of the word, in SuperGLUE's form or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.knowledge.forms import find_form
from plmctl.knowledge.wordnet import INSTALL
from plmctl.storage.reading import parse_json_at
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import SplitFiles
from plmctl.tasks.record import Example
from plmctl.text.inputs import need_lines

_SHOWN = (
    '{"word": "bank", "sentence1": "...", "sentence2": "...", "label": true,'
    ' "start1": 4, "end1": 8, "start2": 0, "end2": 4}'
)
_LABELS = {True: "true", False: "false", "T": "true", "F": "false"}


@part_of("reader")
class WicFiles(SplitFiles):
    """Pairs of sentences with one word that both have, and whether it means the same in both.

    `start1` .. `end2` are its characters (SuperGLUE); a line without them is searched for a form
    of the word (`knowledge.forms`). `fields` of an example: `word`, `text`, `text2`, and `places`,
    the characters of the word in each.

    Args:
        wordnet: the dictionary by which forms are found; None: where it is usual, else rules alone.
    """

    bare_test = True

    def __init__(
        self, *, splits: Mapping[str, Sequence[str]], folder: str = "", wordnet: str | None = None
    ) -> None:
        super().__init__(splits=splits, folder=folder)
        self.wordnet = wordnet

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        examples = [self._read(text, file, line) for line, text in need_lines(file) if text.strip()]
        if not examples:
            raise DataError("no examples", file=file, fix=_SHOWN)
        absent = next((e for e in examples if labelled and e.label is None), None)
        if absent:
            raise DataError("the label is missing", file=absent.place, fix=_SHOWN)
        return examples

    def _read(self, text: str, file: Path, line: int) -> Example:
        row = parse_json_at(text, file=file, line=line)
        needed = ("word", "sentence1", "sentence2")
        if not isinstance(row, dict) or any(not isinstance(row.get(each), str) for each in needed):
            raise DataError(f"no object with {', '.join(needed)}", file=file, line=line, fix=_SHOWN)
        label = row.get("label")
        if label is not None and label not in _LABELS:
            raise DataError(f"the label is {label!r}", file=file, line=line, fix="true or false")
        places = [self._find(row, number, file, line) for number in ("1", "2")]
        return Example(
            id=str(row.get("idx", line - 1)),
            fields={
                "word": row["word"],
                "text": row["sentence1"],
                "text2": row["sentence2"],
                "places": places,
            },
            label=None if label is None else _LABELS[label],
            place=f"{file}:{line}",
        )

    def _find(self, row: Mapping[str, Any], number: str, file: Path, line: int) -> tuple[int, int]:
        sentence = row[f"sentence{number}"]
        start, end = row.get(f"start{number}"), row.get(f"end{number}")
        if type(start) is int and type(end) is int and 0 <= start < end <= len(sentence):
            return start, end
        if (start, end) != (None, None):
            what = f"the word of sentence{number} stands at {start}..{end}, outside of it"
            raise DataError(what, file=file, line=line, fix="count characters from 0")
        place = find_form(sentence, row["word"], self.wordnet)
        if place is None:
            what = f"no form of '{row['word']}' in sentence{number}"
            fix = f"start{number} and end{number}; or, for irregular forms: {INSTALL}"
            raise DataError(what, file=file, line=line, fix=fix)
        return place
