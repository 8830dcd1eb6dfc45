"""TriviaQA's JSON as examples: a question, the names of its answer, and documents about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.values import fit
from plmctl.storage.reading import parse_json_at
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import SplitFiles
from plmctl.tasks.readers.squad import leave_unanswered
from plmctl.tasks.record import Example
from plmctl.tasks.scores.trivia import find_all
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import kind_of

BETWEEN = "\n\n"  # two documents
LAYOUT = (
    "Data -> Question, QuestionId, Answer -> Value, Aliases; EntityPages -> Filename; or lines of"
    " id, question, document, answers, and scores of several documents"
)


class _Answer(TypedDict):
    Value: str
    Aliases: NotRequired[list[str]]
    HumanAnswers: NotRequired[list[str]]


class _Page(TypedDict):
    Filename: NotRequired[str]


class _Question(TypedDict):
    Question: str
    QuestionId: str
    Answer: NotRequired[_Answer]
    EntityPages: NotRequired[list[_Page]]
    SearchResults: NotRequired[list[_Page]]


class _Content(TypedDict):
    Data: list[_Question]


class _Line(TypedDict):
    question: str
    document: str | list[str]
    id: NotRequired[str]
    answers: NotRequired[list[str]]
    scores: NotRequired[list[float]]


class _Lines(TypedDict):
    lines: list[_Line]


@part_of("reader")
class TriviaFiles(SplitFiles):
    """TriviaQA's files for reading comprehension (Joshi et al., 2017, arXiv:1705.03551), or JSON
    lines of `id`, `question`, `document` (a text, or several), `answers`, and `scores` of the
    documents.

    The documents of a question are one text, behind each other; with scores, `passages` has the
    first character of each and its score. The label of an example is the list of positions of its
    answers (`matching.find_all`). In training, questions without such a position are dropped and
    counted.

    Args:
        splits: Patterns of the files of each split.
        folder: Their folder in `task.path`.
        evidence: The folder of documents, in the folder of the files or above it.
    """

    leaves = "no text holds an answer"

    def __init__(
        self,
        *,
        splits: Mapping[str, Sequence[str]],
        folder: str = "",
        evidence: str = "evidence/wikipedia",
    ) -> None:
        super().__init__(splits=splits, folder=folder)
        self.evidence = evidence

    def read(self, path: files.Where, split: str, columns: Columns) -> list[Example]:
        """The questions of a split; train leaves out questions whose answer is not in the text."""
        file = self.need(path, split)
        examples = self.read_file(file, columns, labelled=not split.startswith("test"))
        if not split.startswith("train"):
            return examples
        usable = [example for example in examples if example.label]
        self.skipped[str(file)] = len(examples) - len(usable)
        if not usable:
            raise DataError("no text holds an answer of its question", file=file, fix=LAYOUT)
        return usable

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        """The questions of one file, in its order; DataError for another layout."""
        try:
            examples = self._lines(file) if kind_of(file) == ".jsonl" else self._data(file)
        except ValueError as error:
            raise DataError(f"not in TriviaQA's layout: {error}", file=file, fix=LAYOUT) from error
        if not examples:
            raise DataError("no questions", file=file)
        return examples if labelled else leave_unanswered(examples)

    def _lines(self, file: Path) -> list[Example]:
        values = [
            parse_json_at(text, file=file, line=number)
            for number, text in need_lines(file)
            if text.strip()
        ]
        content: _Lines = fit({"lines": values}, _Lines)
        found = []
        for number, line in enumerate(content["lines"]):
            given = line["document"]
            texts = [given] if isinstance(given, str) else given
            name, answers = str(line.get("id", number)), line.get("answers", [])
            example = _example(file, name, line["question"], BETWEEN.join(texts), answers)
            if "scores" in line:
                places = _place_scores(texts, line["scores"])
                example = replace(example, fields={**example.fields, "passages": places})
            found.append(example)
        return found

    def _data(self, file: Path) -> list[Example]:
        content: _Content = fit(parse_json_at(files.read_text(file), file=file), _Content)
        found = []
        for question in content["Data"]:
            pages = [*question.get("EntityPages", []), *question.get("SearchResults", [])]
            names = dict.fromkeys(page["Filename"] for page in pages if "Filename" in page)
            texts = [files.read_text(self._document(file, name)) for name in names]
            name, text = question["QuestionId"], BETWEEN.join(texts)
            found.append(_example(file, name, question["Question"], text, _names(question)))
        return found

    def _document(self, file: Path, name: str) -> Path:
        """The file of a document; DataError if it is missing."""
        places = [folder / self.evidence / name for folder in file.absolute().parents[:3]]
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            fix = "task.reader.evidence=<the folder of documents>, as evidence/web"
            raise DataError(f"there is no document {places[0]}", file=file, fix=fix)
        return found


def _names(question: _Question) -> list[str]:
    """All names of the answer, the usual one first."""
    answer = question.get("Answer")
    if answer is None:
        return []
    names = [answer["Value"], *answer.get("Aliases", []), *answer.get("HumanAnswers", [])]
    return list(dict.fromkeys(names))


def _place_scores(texts: Sequence[str], scores: Sequence[float]) -> list[tuple[int, float]]:
    """(first character, score) of each of `texts`, which are joined."""
    if len(texts) != len(scores):
        raise ValueError(f"{len(scores)} scores of {len(texts)} documents")
    firsts = accumulate((len(text) + len(BETWEEN) for text in texts), initial=0)
    return list(zip(firsts, scores, strict=False))


def _example(file: Path, name: str, question: str, text: str, answers: list[str]) -> Example:
    fields = {"question": question, "context": text, "answers": answers}
    places = tuple(find_all(answers, text)) or None
    return Example(id=name, fields=fields, label=places, place=f"{file} question {name}")
