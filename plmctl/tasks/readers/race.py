"""RACE's files as examples: questions about an article, each with its options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.values import fit
from plmctl.storage.reading import parse_json_at
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import FileRecord, SplitFiles, read_records, require_labels
from plmctl.tasks.record import Example

SHOWN = (
    '{"id": "high1.txt", "article": "...", "questions": ["..."], "options": [["...", "..."]],'
    ' "answers": ["A"]}, or of one question {"article", "question", "options": [...], "answer"}'
)
SCHOOLS = ("middle", "high")
GAP = "_"  # the gap that an option fills, in some questions


class _Article(TypedDict):
    article: str
    questions: list[str]
    options: list[list[str]]
    answers: NotRequired[list[str] | None]


class _Question(TypedDict):
    article: str
    question: str
    options: list[str]
    answer: NotRequired[str | None]


@part_of("reader")
class RaceFiles(SplitFiles):
    """Folders `train/middle`, `train/high`, ... with an article in each `.txt`, which is JSON (Lai
    et al., 2017, arXiv:1704.04683), or JSON lines of articles or of questions.

    `text` is the article; a choice is the question with the option in its gap, or behind it. The
    school is a slice where a folder or the id names it; the questions of one article are a bundle.
    """

    def has(self, path: files.Where, split: str, columns: Columns | None = None) -> bool:
        return bool(self._find_folder(path, split)) or super().has(path, split)

    def read(self, path: files.Where, split: str, columns: Columns) -> list[Example]:
        labelled = split.startswith(("train", "dev"))
        folder = self._find_folder(path, split)
        if folder is None:
            return self.read_file(self.need(path, split), columns, labelled=labelled)
        articles = sorted(folder.rglob("*.txt"))
        if not articles:
            raise DataError("no articles: no *.txt is inside", file=folder, fix=SHOWN)
        made = [e for file in articles for e in _list_questions(_read_article(file))]
        return require_labels(made, labelled)

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        kind = dict[str, Any]
        made = [e for record in read_records(file, kind, shown=SHOWN) for e in _list_any(record)]
        return require_labels(made, labelled)

    def _find_folder(self, path: files.Where, split: str) -> Path | None:
        """The folder of a split: as it is named, or in `path`, or in its folder RACE."""
        if not isinstance(path, str | Path):
            named = files.locate(path, split, ())
            return named if named and named.is_dir() else None
        place = Path(path).expanduser()
        if not place.is_dir():
            return None
        inside = [place, *(each for each in place.iterdir() if each.name == self.folder)]
        found = [
            each
            for pattern in self.splits.get(split, ())
            for base in inside
            for each in sorted(base.iterdir())
            if each.is_dir() and fnmatch(each.name.lower(), pattern)
        ]
        return found[0] if found else None


def _read_article(file: Path) -> FileRecord:
    return FileRecord(
        _fit(parse_json_at(files.read_text(file), file=file), _Article, file), str(file), 0
    )


def _fit(value: Any, kind: Any, place: object) -> dict[str, Any]:
    try:
        found: dict[str, Any] = fit(value, kind)
    except ValueError as error:
        raise DataError(f"not in RACE's layout: {error}", file=place, fix=SHOWN) from None
    return found


def _list_any(record: FileRecord) -> Iterator[Example]:
    """The questions of an article, or the single question of the line."""
    if "questions" in record.values:
        values = _fit(record.values, _Article, record.place)
        yield from _list_questions(record._replace(values=values))
        return
    values = _fit(record.values, _Question, record.place)
    answer = values.get("answer")
    several = {
        "questions": [values["question"]],
        "options": [values["options"]],
        "answers": None if answer is None else [answer],
        "number": record.number,  # all questions of an article have its id
    }
    yield from _list_questions(record._replace(values={**values, **several}))


def _list_questions(record: FileRecord) -> Iterator[Example]:
    values, place = record.values, record.place
    questions, options, answers = values["questions"], values["options"], values.get("answers")
    if not len(questions) == len(options) == len(questions if answers is None else answers):
        counts = f"{len(questions)} questions, {len(options)} lists of options"
        given = "" if answers is None else f", {len(answers)} answers"
        raise DataError(f"{counts}{given}", file=place, fix="one of each for every question")
    name = str(values.get("id", values.get("example_id", record.number)))
    school = next((s for s in SCHOOLS if s in Path(place).parts[:-1] or name.startswith(s)), None)
    for number, (question, own) in enumerate(zip(questions, options, strict=True)):
        if len(own) < 2:
            raise DataError(f"question {number} has {len(own)} options", file=place, fix=SHOWN)
        yield Example(
            id=f"{name}-{values.get('number', number)}",
            fields={"text": values["article"], "choices": _fill(question, own)},
            label=None if answers is None else answers[number],
            place=place,
            slices=(school,) if school else (),
            bundle=name,
        )


def _fill(question: str, options: Sequence[str]) -> list[str]:
    """The question with each option in its gap, or behind it (as Yang et al., 2019, XLNet)."""
    if GAP in question:
        return [question.replace(GAP, option) for option in options]
    return [f"{question} {option}" for option in options]
