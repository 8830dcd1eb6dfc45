"""ARC's files as examples: questions of science with three to five options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers import files
from plmctl.tasks.readers.choices import Choices
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import FileRecord, read_records, require_labels
from plmctl.tasks.record import Example
from plmctl.text.tabular import kind_of

SHOWN = (
    '{"id": "...", "question": {"stem": "...", "choices": [{"text": "...", "label": "A"}, ...]},'
    ' "answerKey": "A"}'
)
Set = Literal["easy", "challenge"]
LINES = (".jsonl", ".json")
LETTERS = "ABCDEFGH"


class _Option(TypedDict):
    text: str
    label: str


class _Stem(TypedDict):
    stem: str
    choices: list[_Option]


class _Columns(TypedDict):
    text: list[str]
    label: list[str]


class _Question(TypedDict):
    id: str
    question: _Stem | str
    choices: NotRequired[_Columns]
    answerKey: NotRequired[str | None]


@part_of("reader")
class ArcFiles(Choices):
    """JSON lines as they are distributed (Clark et al., 2018, arXiv:1803.05457), or as they are
    packed again, with the lists `choices.text` and `choices.label`; or tables, by `columns`.

    All files of a folder, and of folders inside it, that fit the split are read together. Their set
    (easy, challenge), which their name shows, is a slice. Labels of options are letters, or numbers
    from 1. Differs: the official CSV files, which hold all options in one cell, are not read.

    Args:
        sets: The sets that are read.
    """

    leaves = "the answer is none of the options"

    def __init__(
        self,
        *,
        splits: Mapping[str, Sequence[str]],
        folder: str = "",
        header: bool | None = None,
        lenient: bool = False,
        sets: Sequence[Set] = ("easy", "challenge"),
    ) -> None:
        super().__init__(splits=splits, folder=folder, header=header, lenient=lenient)
        self.sets = tuple(sets)

    def has(self, path: files.Where, split: str, columns: Columns | None = None) -> bool:
        return bool(self._find(path, split)) or super().has(path, split)

    def read(self, path: files.Where, split: str, columns: Columns) -> list[Example]:
        found = self._find(path, split) or [self.need(path, split)]
        labelled = split.startswith(("train", "dev"))
        return [e for file in found for e in self.read_file(file, columns, labelled=labelled)]

    def read_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> list[Example]:
        name = _name_set(file)
        slices = (name,) if name else ()
        if kind_of(file) in LINES:
            records = read_records(file, _Question, shown=SHOWN)
            examples = require_labels(list(map(_example, records)), labelled)
        else:
            examples = super().read_file(file, columns, header=header, labelled=labelled)
            examples = self._pass_over(examples, file) if self.lenient else examples
        return [replace(example, slices=slices) for example in examples]

    def _pass_over(self, examples: list[Example], file: Path) -> list[Example]:
        """The examples whose answer is among their options; tables may lack the fifth."""
        kept = [e for e in examples if e.label is None or _is_option(e.label, e.fields["choices"])]
        self.skipped[str(file)] = self.skipped.get(str(file), 0) + len(examples) - len(kept)
        return kept

    def _find(self, path: files.Where, split: str) -> list[Path]:
        """The files of a split in a folder and in those inside it; tables where no JSON is."""
        if not isinstance(path, str | Path) or not Path(path).expanduser().is_dir():
            return []
        place = Path(path).expanduser()
        fits = [
            file
            for file in sorted([*place.glob("*"), *place.glob("*/*")])
            if file.is_file()
            and (_name_set(file) in (None, *self.sets))
            and any(fnmatch(file.name.lower(), pattern) for pattern in self.splits.get(split, ()))
        ]
        lines = [file for file in fits if kind_of(file) in LINES]
        return lines or [file for file in fits if kind_of(file) in (".csv", ".tsv")]


def _name_set(file: Path) -> str | None:
    where = f"{file.parent.name}/{file.name}".lower()
    return next((name for name in ("easy", "challenge") if name in where), None)


def _is_option(label: str, options: Sequence[str]) -> bool:
    return label.upper() in LETTERS[: len(options)] or label in "12345678"[: len(options)]


def _example(record: FileRecord) -> Example:
    values = record.values
    labels, texts = map(list, zip(*_list_options(record), strict=True))
    key, stem = values.get("answerKey"), values["question"]
    if key is not None and key not in labels:
        problem = f"the answer '{key}' is none of the options {', '.join(labels)}"
        raise DataError(problem, file=record.place, fix=SHOWN)
    return Example(
        id=values["id"],
        fields={"text": stem if isinstance(stem, str) else stem["stem"], "choices": texts},
        label=None if key is None else LETTERS[labels.index(key)],
        place=record.place,
    )


def _list_options(record: FileRecord) -> Iterator[tuple[str, str]]:
    """(label, text) of each; DataError for fewer than two, or more than letters allow."""
    question = record.values["question"]
    if isinstance(question, str):
        packed = record.values.get("choices", {"label": [], "text": []})
        found = list(zip(packed["label"], packed["text"], strict=False))
    else:
        found = [(each["label"], each["text"]) for each in question["choices"]]
    if not 2 <= len(found) <= 8 or len({label for label, _ in found}) < len(found):
        problem = f"{len(found)} options, where 2 to 8 with labels of their own are needed"
        raise DataError(problem, file=record.place, fix=SHOWN)
    yield from found
