"""MultiRC's files as examples: each answer to each question about a passage, right or wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import FileRecord, SplitFiles, read_records, require_labels
from plmctl.tasks.record import Example

SHOWN = (
    '{"idx": 0, "passage": {"text": "...", "questions": [{"idx": 0, "question": "...", "answers":'
    ' [{"idx": 0, "text": "...", "label": 1}]}]}}'
)


class _Answer(TypedDict):
    idx: int
    text: str
    label: NotRequired[Literal[0, 1] | None]


class _Question(TypedDict):
    idx: int
    question: str
    answers: list[_Answer]


class _Passage(TypedDict):
    text: str
    questions: list[_Question]


class _Paragraph(TypedDict):
    idx: int
    passage: _Passage


@part_of("reader")
class MultircFiles(SplitFiles):
    """JSON lines of SuperGLUE, a passage each (Khashabi et al., 2018; Wang et al., 2019,
    arXiv:1905.00537).

    An example is one answer: `text` is the passage, `text2` the question with the answer behind
    it, `bundle` the question; its id is `passage.question.answer`.
    """

    bare_test = True

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        paragraphs = read_records(file, _Paragraph, shown=SHOWN)
        made = [example for record in paragraphs for example in _list_answers(record)]
        if not made:
            raise DataError("no answers", file=file, fix=SHOWN)
        return require_labels(made, labelled)


def _list_answers(record: FileRecord) -> Iterator[Example]:
    passage, number = record.values["passage"], record.values["idx"]
    for question in passage["questions"]:
        bundle = f"{number}.{question['idx']}"
        for answer in question["answers"]:
            label = answer.get("label")
            yield Example(
                id=f"{bundle}.{answer['idx']}",
                fields={
                    "text": passage["text"],
                    "text2": f"{question['question']} {answer['text']}",
                },
                label=None if label is None else str(label),
                place=record.place,
                bundle=bundle,
            )
