"""WikiHop's JSON as examples: a question, its candidates, and the documents that answer it."""

from __future__ import annotations

from pathlib import Path
from typing import NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.values import fit
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import SplitFiles, read_json
from plmctl.tasks.record import Example

LAYOUT = "a list, or lines, of id, query, candidates, supports (the documents), answer"


class _Question(TypedDict):
    id: NotRequired[str]
    query: str
    candidates: list[str]
    supports: list[str]
    answer: NotRequired[str | None]


class _Content(TypedDict):
    questions: list[_Question]


@part_of("reader")
class CandidateFiles(SplitFiles):
    """A JSON list, or JSON lines, of questions with `candidates` and `supports` (Welbl et al.,
    2018, arXiv:1710.06481).
    """

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        """The questions of one file, in its order; DataError for another layout."""
        values = read_json(file)
        try:
            content: _Content = fit({"questions": values}, _Content)
        except ValueError as error:
            raise DataError(f"not in WikiHop's layout: {error}", file=file, fix=LAYOUT) from error
        if not content["questions"]:
            raise DataError("no questions", file=file)
        return [
            _example(file, number, question) for number, question in enumerate(content["questions"])
        ]


def _example(file: Path, number: int, question: _Question) -> Example:
    place = f"{file} question {question.get('id', number)}"
    candidates = [candidate.strip() for candidate in question["candidates"]]
    if len(candidates) < 2 or not all(candidates) or len(set(candidates)) < len(candidates):
        problem = "two different candidates are needed at least, none empty and none twice"
        raise DataError(f"{problem}: {', '.join(candidates)}", file=place)
    answer = question.get("answer")
    if answer is not None and answer.strip() not in candidates:
        raise DataError(f"the answer '{answer}' is none of the candidates", file=place)
    fields = {
        "question": question["query"],
        "candidates": candidates,
        "documents": list(question["supports"]),
    }
    label = None if answer is None else answer.strip()
    return Example(str(question.get("id", number)), fields, label, place)
