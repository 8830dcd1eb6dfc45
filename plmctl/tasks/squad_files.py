"""SQuAD's JSON as examples, every answer's character offset checked against its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks import files
from plmctl.tasks.base import Example
from plmctl.tasks.split_files import SplitFiles, read_layout

MISPLACED = "misplaced"  # the label of a question whose answer does not stand where the file says
LAYOUT = "data -> paragraphs -> context, qas -> id, question, answers -> text, answer_start"


class _Answer(TypedDict):
    text: str
    answer_start: int


class _Question(TypedDict):
    id: str
    question: str
    answers: NotRequired[list[_Answer] | None]
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
    """data -> paragraphs(context, qas(id, question, answers[text, answer_start], is_impossible)).

    (Rajpurkar et al., 2016; 2018.) In training, questions whose answer does not stand at its offset
    are dropped and counted.
    """

    def __init__(self, *, splits: Mapping[str, Sequence[str]], folder: str = "") -> None:
        super().__init__(splits=splits, folder=folder)
        # file -> ids of questions that stay although their answer is not there
        self.misplaced: dict[str, list[str]] = {}

    def read(self, path: files.Where, split: str, columns: Mapping[str, Any]) -> list[Example]:
        """The questions of a split; in train without those whose answer is misplaced."""
        file = self.need(path, split)
        examples = self.read_file(file, columns)
        if not split.startswith("train"):
            self.misplaced[str(file)] = [
                example.id for example in examples if example.label == MISPLACED
            ]
            return examples
        usable = [example for example in examples if example.label != MISPLACED]
        self.skipped[str(file)] = len(examples) - len(usable)
        return usable

    def read_file(
        self, file: Path, columns: Mapping[str, Any], *, labelled: bool = True
    ) -> list[Example]:
        """The questions of one file, in its order; DataError for another layout."""
        content = read_layout(file, _Content, name="SQuAD", layout=LAYOUT)
        examples = [
            _example(file, paragraph["context"], question)
            for article in content["data"]
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
        if not examples:
            raise DataError("no questions", file=file)
        return examples


def find_span(context: str, text: str, start: int) -> tuple[int, int] | str:
    """The characters [start, end) of an answer; MISPLACED where the context has another text."""
    at_offset = text and start >= 0 and context[start : start + len(text)] == text
    return (start, start + len(text)) if at_offset else MISPLACED


def _example(file: Path, context: str, qa: _Question) -> Example:
    """The label is (first character, last character + 1) of the first answer, None without one,
    MISPLACED if the text has another string at that offset.
    """
    answers = qa.get("answers") or []
    label: Any = None
    if answers and not qa.get("is_impossible", False):
        label = find_span(context, answers[0]["text"], answers[0]["answer_start"])
    fields = {
        "question": qa["question"],
        "context": context,
        "answers": [answer["text"] for answer in answers],
    }
    return Example(id=qa["id"], fields=fields, label=label, place=f"{file} question {qa['id']}")
