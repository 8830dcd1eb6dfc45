"""C3's files as examples: questions about Chinese dialogues and texts, each with its options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.values import fit
from plmctl.storage.reading import parse_json_at
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import SplitFiles, require_labels
from plmctl.tasks.record import Example

SHOWN = (
    '[[["男：...", "女：..."], [{"question": "...", "choice": ["...", "..."], "answer": "..."}],'
    ' "25-35"], ...]'
)
KINDS = {"d": "dialogue", "m": "mixed"}  # by the letter in the name of a file


class _Question(TypedDict):
    question: str
    choice: list[str]
    answer: NotRequired[str | None]
    id: NotRequired[str | int]


@part_of("reader")
class C3Files(SplitFiles):
    """JSON lists of texts with their questions (Sun et al., 2020, arXiv:1904.09679;
    CLUEbenchmark/CLUE, README): `d-train.json` has dialogues, `m-train.json` texts of all kinds.

    Both files of a split are read together; their kind is a slice. `text` is the lines of a text; a
    choice is the question with an option behind it. The questions of a text are a bundle.
    """

    def has(self, path: files.Where, split: str, columns: Columns | None = None) -> bool:
        return bool(self._find(path, split)) or super().has(path, split)

    def read(self, path: files.Where, split: str, columns: Columns) -> list[Example]:
        labelled = split.startswith(("train", "dev"))
        found = self._find(path, split) or [self.need(path, split)]
        return [e for file in found for e in self.read_file(file, columns, labelled=labelled)]

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        content = parse_json_at(files.read_text(file), file=file)
        kind = KINDS.get(file.name.removeprefix("c3-")[:1]) if "-" in file.name else None
        if not isinstance(content, list):
            raise DataError("not in C3's layout: a list is needed", file=file, fix=SHOWN)
        made = [
            example
            for number, entry in enumerate(content)
            for example in _list_questions(entry, number, file, (kind,) if kind else ())
        ]
        if not made:
            raise DataError("no questions", file=file, fix=SHOWN)
        return require_labels(made, labelled)

    def _find(self, path: files.Where, split: str) -> list[Path]:
        """All files of a split in a folder."""
        if not isinstance(path, str | Path) or not Path(path).expanduser().is_dir():
            return []
        return files.match_all(Path(path).expanduser(), self.splits.get(split, ()))


def _list_questions(
    entry: Any, number: int, file: Path, slices: tuple[str, ...]
) -> Iterator[Example]:
    place = f"{file}, number {number}"
    try:
        lines, questions = fit(entry[0], list[str]), fit(entry[1], list[_Question])
    except (ValueError, TypeError, LookupError) as error:
        why = str(error) if isinstance(error, ValueError) else "a text and its questions are needed"
        raise DataError(f"not in C3's layout: {why}", file=place, fix=SHOWN) from None
    name = str(entry[2]) if len(entry) > 2 else str(number)
    for at, question in enumerate(questions):
        options, answer = question["choice"], question.get("answer")
        if len(options) < 2:
            raise DataError(f"question {at} has {len(options)} options", file=place, fix=SHOWN)
        if answer is not None and answer not in options:
            what = f"the answer '{answer}' is none of the options {', '.join(options)}"
            raise DataError(what, file=place, fix="write an option as it is spelled in the list")
        yield Example(
            id=str(question.get("id", f"{name}-{at}")),
            fields={
                "text": "\n".join(lines),
                "choices": [f"{question['question']} {option}" for option in options],
            },
            label=None if answer is None else str(options.index(answer)),
            place=place,
            slices=slices,
            bundle=f"{'-'.join(slices)}{name}",
        )
