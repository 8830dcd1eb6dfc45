"""QuAC's JSON as examples: questions about a section of an encyclopedia, with the earlier turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import read_layout
from plmctl.tasks.readers.squad import SquadFiles, find_span, leave_unanswered
from plmctl.tasks.record import Example
from plmctl.tasks.scores.quac import NONE

LAYOUT = (
    "data -> paragraphs -> id, context, qas -> id, question, answers -> text, answer_start; yesno"
    " (y, n or x), followup (y, m or n), orig_answer -> text, answer_start"
)


class _Answer(TypedDict):
    text: str
    answer_start: int


class _Question(TypedDict):
    id: str
    question: str
    answers: NotRequired[list[_Answer] | None]
    orig_answer: NotRequired[_Answer | None]
    yesno: NotRequired[Literal["y", "n", "x"]]
    followup: NotRequired[Literal["y", "m", "n"]]


class _Section(TypedDict):
    id: str
    context: str
    qas: list[_Question]


class _Article(TypedDict):
    paragraphs: list[_Section]


class _Content(TypedDict):
    data: list[_Article]


@part_of("reader")
class QuacFiles(SquadFiles):
    """data -> paragraphs(id, context, qas(id, question, answers, orig_answer, yesno, followup)).

    (Choi et al., 2018, arXiv:1808.07036.) The word CANNOTANSWER at the end of a context is left
    out: a question with this answer has none. `history` has the answers of the teacher
    (orig_answer), as the label has.
    """

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        """The questions of one file, in its order; DataError for another layout."""
        content = read_layout(file, _Content, name="QuAC", layout=LAYOUT)
        examples = [
            example
            for article in content["data"]
            for section in article["paragraphs"]
            for example in _list_questions(file, section)
        ]
        if not examples:
            raise DataError("no questions", file=file, fix=LAYOUT)
        return examples if labelled else leave_unanswered(examples)


def _list_questions(file: Path, section: _Section) -> Iterator[Example]:
    context = section["context"].removesuffix(NONE).rstrip()
    history: list[str] = []
    for question in section["qas"]:
        place = f"{file} question {question['id']}"
        answers = question.get("answers") or []
        given = question.get("orig_answer") or (answers[0] if answers else None)
        fields = {
            "question": question["question"],
            "context": context,
            "history": list(history),
            "answers": [answer["text"] for answer in answers],
            "dialogue": section["id"],
        }
        label: Any = None
        if given is not None:
            absent = [name for name in ("yesno", "followup") if name not in question]
            if absent:
                raise DataError(f"an answer without {absent[0]}", file=place, fix=LAYOUT)
            fields |= {"yes_no": question["yesno"], "followup": question["followup"]}
            if given["text"] != NONE:
                label = find_span(context, given["text"], given["answer_start"])
            history += [question["question"], given["text"]]
        yield Example(question["id"], fields, label, place)
