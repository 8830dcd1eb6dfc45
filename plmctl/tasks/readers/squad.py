"""SQuAD's JSON, or a row for each question, as examples; every answer's character offset is checked
against its text.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.values import fit
from plmctl.storage.reading import parse_json, parse_json_at
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import SplitFiles, read_layout
from plmctl.tasks.record import Example
from plmctl.text.tabular import PARQUET, cells_of, kind_of, objects_of

MISPLACED = "misplaced"  # the label of a question whose answer does not stand where the file says
# an array of NumPy, in a frame
_ARRAY = re.compile(r"array\((\[.*?\])(?:, dtype=\w+)?\)", re.DOTALL)
_TEXTS = ("answer_text", "answer")  # columns of tables with the text of one answer
FLAT = "a row for each question: question, context, answers -> text: [...], answer_start: [...]"
LAYOUT = "data -> paragraphs -> context, qas -> id, question, answers -> text, answer_start"


class _Answer(TypedDict):
    text: str
    answer_start: int


class _Lists(TypedDict):
    """The answers of a question as the columns of a table."""

    text: list[str]
    answer_start: list[int]


_Answers = list[_Answer] | _Lists | None


class _Question(TypedDict):
    id: str
    question: str
    answers: NotRequired[_Answers]
    is_impossible: NotRequired[bool]


class _Row(TypedDict):
    context: str
    question: str
    answers: NotRequired[_Answers]
    is_impossible: NotRequired[bool]


class _Paragraph(TypedDict):
    context: str
    qas: list[_Question]


class _Article(TypedDict):
    paragraphs: list[_Paragraph]


class _Content(TypedDict):
    data: list[_Article]


@part_of("reader")
class SquadFiles(SplitFiles):
    """data -> paragraphs(context, qas(id, question, answers[text, answer_start], is_impossible));
    or JSON lines, a list or Parquet with a row for each question, whose answers may be two lists;
    or a table (.csv, .tsv) of such rows, with the answers as JSON or Python writes them, or in the
    columns `answer_text` and `answer_start`.

    (Rajpurkar et al., 2016; 2018.) In training, questions whose answer does not stand at its offset
    are dropped and counted.
    """

    leaves = "the answer does not stand at its answer_start"

    def __init__(self, *, splits: Mapping[str, Sequence[str]], folder: str = "") -> None:
        super().__init__(splits=splits, folder=folder)
        # file -> ids of questions that stay although their answer is not there
        self.misplaced: dict[str, list[str]] = {}

    def read(self, path: files.Where, split: str, columns: Columns) -> list[Example]:
        """The questions of a split; train leaves out questions whose answer is misplaced."""
        file = self.need(path, split)
        examples = self.read_file(file, columns, labelled=not split.startswith("test"))
        if not split.startswith("train"):
            self.misplaced[str(file)] = [
                example.id for example in examples if example.label == MISPLACED
            ]
            return examples
        usable = [example for example in examples if example.label != MISPLACED]
        self.skipped[str(file)] = len(examples) - len(usable)
        return usable

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        """The questions of one file, in its order; DataError for another layout, and with
        `labelled` for a question of which nothing says whether it has an answer.
        """
        rows = _find_rows(file)
        if rows is not None:
            read = [
                _read_row(row, number, place, labelled) for number, (place, row) in enumerate(rows)
            ]
        else:
            content = read_layout(file, _Content, name="SQuAD", layout=LAYOUT)
            read = [
                _example(
                    question, paragraph["context"], f"{file} question {question['id']}", labelled
                )
                for article in content["data"]
                for paragraph in article["paragraphs"]
                for question in paragraph["qas"]
            ]
        if not read:
            raise DataError("no questions", file=file)
        examples = [example for example, _ in read]
        impossible = any(without for _, without in read)
        return examples if labelled or impossible else leave_unanswered(examples)


def find_span(context: str, text: str, start: int) -> tuple[int, int] | str:
    """The characters [start, end) of an answer; MISPLACED where the context has another text."""
    at_offset = text and start >= 0 and context[start : start + len(text)] == text
    return (start, start + len(text)) if at_offset else MISPLACED


def leave_unanswered(examples: list[Example]) -> list[Example]:
    """The examples; without `answers` where no question of the file has one, since then nothing
    says that none is right.
    """
    if any(any(example.fields["answers"]) for example in examples):
        return examples
    return [
        replace(each, fields={k: v for k, v in each.fields.items() if k != "answers"})
        for each in examples
    ]


def _find_rows(file: Path) -> Iterator[tuple[str, Any]] | None:
    """(file:line, a row) of each question of a file that has a row for each; None for a file in
    SQuAD's layout.
    """
    if kind_of(file) in (".csv", ".tsv"):
        return _read_table(file)
    if kind_of(file) in (".jsonl", PARQUET):
        return ((f"{file}:{line}", row) for line, row in objects_of(file))
    text = files.read_text(file)
    if _begins_with_row(text):
        return ((f"{file}:{line}", row) for line, row in objects_of(file))
    content = parse_json_at(text, file=file)
    rows = content.get("data") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not rows or not _is_row(rows[0]):
        return None
    return ((f"{file}, number {number}", row) for number, row in enumerate(rows))


def _read_table(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file:line, a row) of each question of a table with a header."""
    rows = cells_of(file)
    _, names = next(rows, (1, []))
    if not {"question", "context"} <= {*names}:
        what = f"no columns question and context; found {', '.join(names)}"
        raise DataError(what, file=file, line=1, fix=f"{FLAT}, or answer_text, answer_start")
    for line, cells in rows:
        row: dict[str, Any] = dict(zip(names, cells, strict=False))
        place = f"{file}:{line}"
        text = next((row.pop(name) for name in _TEXTS if name in row), None)
        if "answers" in row:
            row["answers"] = _read_cell(row["answers"], place)
        elif text is not None and not text.strip():
            row["answers"] = []
        elif text is not None:
            start = row.get("answer_start", "").strip()
            if not start.isdecimal():
                what = f"answer_start is {start!r}, no number of characters"
                raise DataError(what, file=place, fix=FLAT)
            row["answers"] = [{"text": text, "answer_start": int(start)}]
        if "is_impossible" in row:
            row["is_impossible"] = row["is_impossible"].strip().lower() in ("true", "1")
        yield place, row


def _read_cell(cell: str, place: str) -> Any:
    """Answers as JSON, Python or pandas writes them; none of an empty cell."""
    cell = _ARRAY.sub(r"\1", cell)
    for read in (parse_json, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return read(cell.strip() or "[]")
    raise DataError(f"answers are neither JSON nor a list: {cell[:60]!r}", file=place, fix=FLAT)


def _is_row(value: Any) -> bool:
    return isinstance(value, dict) and {"question", "context"} <= value.keys()


def _begins_with_row(text: str) -> bool:
    """Whether the first line of a file is a whole row, as in JSON lines."""
    first = text.lstrip().partition("\n")[0].rstrip()
    if not first.endswith("}") or '"paragraphs"' in first:
        return False
    try:
        return _is_row(parse_json(first))
    except ValueError:
        return False


def _read_row(row: Any, number: int, place: str, labelled: bool) -> tuple[Example, bool]:
    try:
        found = fit(row, _Row)
    except ValueError as error:
        what = f"no row of a question: {error}"
        raise DataError(what, file=place, fix=FLAT) from None
    name = row.get("id")
    asked = {**row, **found, "id": str(number if name is None else name)}
    return _example(asked, row["context"], place, labelled)


def _list_answers(answers: _Answers, place: str) -> list[_Answer]:
    """The answers of a question; DataError where two lists of them are of other lengths."""
    if not isinstance(answers, Mapping):
        return list(answers or ())
    texts, starts = answers["text"], answers["answer_start"]
    if len(texts) != len(starts):
        what = f"{len(texts)} texts of answers, and {len(starts)} starts"
        raise DataError(what, file=place, fix=FLAT)
    return [
        _Answer(text=text, answer_start=start) for text, start in zip(texts, starts, strict=True)
    ]


def _example(
    qa: Mapping[str, Any], context: str, place: str, labelled: bool
) -> tuple[Example, bool]:
    """A question, and whether the file says that it has no answer. The label is (first character,
    last character + 1) of the first answer, None without one or of an empty text, MISPLACED if the
    text has another string at that offset.
    """
    impossible = bool(qa.get("is_impossible", False))
    if labelled and "answers" not in qa and not impossible:
        what = f"no field answers; found {', '.join(qa)}"
        raise DataError(
            what, file=place, fix=f"{FLAT}; of a question without an answer: answers: []"
        )
    answers = _list_answers(qa.get("answers"), place)
    label: Any = None
    # some conversions write an empty text for no answer
    if answers and answers[0]["text"].strip() and not impossible:
        label = find_span(context, answers[0]["text"], answers[0]["answer_start"])
    fields = {
        "question": qa["question"],
        "context": context,
        "answers": [answer["text"] for answer in answers],
    }
    return Example(id=qa["id"], fields=fields, label=label, place=place), impossible
