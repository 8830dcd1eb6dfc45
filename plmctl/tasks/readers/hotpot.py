"""HotpotQA's JSON as examples: a question, paragraphs of sentences with titles, the answer and the
sentences that support it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, fit
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.former import read_former
from plmctl.tasks.readers.split_files import SplitFiles, read_json
from plmctl.tasks.record import Example

LAYOUT = (
    "a list of _id, question, context -> [title, [sentence, ...]], answer, supporting_facts ->"
    " [title, number of the sentence]"
)
Fact = tuple[str, int]  # title of a paragraph, number of a sentence from 0


FIRST_STAGE = (
    "plmctl eval checkpoint=<the first model> split=train out=<folder>, and the same with split=dev"
)
KEYS = {"context": ("title", "sentences"), "supporting_facts": ("title", "sentence")}
Scores = dict[str, list[float]]  # id of a question -> scores of its paragraphs


class _Question(TypedDict):
    _id: str
    question: str
    context: list[list[Any]]
    answer: NotRequired[str | None]
    supporting_facts: NotRequired[list[list[Any]] | None]


class _Content(TypedDict):
    questions: list[_Question]


class _Prediction(TypedDict):
    id: str
    paragraphs: list[float | None]


class _Paragraph(TypedDict):
    title: str
    sentences: list[str]


class _Fact(TypedDict):
    title: str
    sentence: int


class _Parts(TypedDict):
    context: list[_Paragraph]
    supporting_facts: list[_Fact]


@part_of("reader")
class HotpotFiles(SplitFiles):
    """The JSON list in which HotpotQA is distributed (Yang et al., 2018, arXiv:1809.09600), or JSON
    lines of the same fields.

    The label of an example is its supporting facts, as (title, number of the sentence). Some facts
    of the published files name a missing sentence, and with retrieved paragraphs (the fullwiki
    setting) others do. They count in the scores and are counted in `lost`.

    With `first_stage` only the paragraphs are read that a first model found relevant. So a second
    one is trained and scored on less text (Beltagy et al., 2020, arXiv:2004.05150, app. D).
    Differs: the best two are kept in any case, as evidence comes from two.

    Args:
        splits: patterns of the files of each split.
        folder: Their folder in `task.path`.
        first_stage: a folder of predictions of the first model, of all splits that are read.
        keep: paragraphs that are read at most.
        threshold: the score above which they are.
    """

    def __init__(
        self,
        *,
        splits: Mapping[str, Sequence[str]],
        folder: str = "",
        first_stage: str | None = None,
        keep: Count = 5,
        threshold: float = -3.0,
    ) -> None:
        super().__init__(splits=splits, folder=folder)
        self.first_stage, self.keep, self.threshold = first_stage, keep, threshold
        self.lost: dict[str, int] = {}  # file -> facts without their sentence
        # file -> questions of which the first stage has left out a supporting paragraph
        self.bereft: dict[str, int] = {}

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        """The questions of one file, in its order; DataError for another layout."""
        values = read_json(file)
        try:
            content: _Content = fit({"questions": values}, _Content)
        except ValueError as error:
            raise _wrong_layout(file, error) from error
        examples = [_example(file, question) for question in content["questions"]]
        if not examples:
            raise DataError("no questions", file=file)
        names = set[str]()
        for example in examples:
            if example.id in names:
                problem = "another question has the same _id: predictions are told apart by it"
                raise DataError(problem, file=example.place)
            names.add(example.id)
        self.lost[str(file)] = sum(map(_count_lost, examples))
        if self.first_stage is None:
            return examples
        scores = read_scores(Path(self.first_stage).expanduser())
        shorter = [self._shorten(example, scores) for example in examples]
        self.bereft[str(file)] = sum(
            _count_lost(after) > _count_lost(before)
            for before, after in zip(examples, shorter, strict=True)
        )
        return shorter

    def _shorten(self, example: Example, known: Scores) -> Example:
        """The example with the paragraphs that the first model found relevant, in their order."""
        context, scores = example.fields["context"], known.get(example.id)
        if scores is None or len(scores) != len(context):
            problem = (
                f"{self.first_stage} has no scores of its {len(context)} paragraphs"
                if scores is None
                else f"{self.first_stage} has {len(scores)} scores of its {len(context)} paragraphs"
            )
            raise DataError(problem, file=example.place, fix=FIRST_STAGE)
        order = sorted(range(len(context)), key=lambda number: -scores[number])
        kept = [
            number
            for place, number in enumerate(order[: self.keep])
            if place < 2 or scores[number] > self.threshold
        ]
        shorter = {**example.fields, "context": [context[number] for number in sorted(kept)]}
        return replace(example, fields=shorter)


def read_scores(folder: Path) -> Scores:
    """The scores of paragraphs in the predictions of all splits; a paragraph that was cut off has
    the lowest.
    """
    former = read_former(folder, _Prediction, task="hotpotqa", fix=FIRST_STAGE)
    return {
        prediction["id"]: [-math.inf if z is None else z for z in prediction["paragraphs"]]
        for prediction in former
    }


def _example(file: Path, question: _Question) -> Example:
    place = f"{file} question {question['_id']}"
    parts = _name_parts(place, question)
    context = [(each["title"], each["sentences"]) for each in parts["context"]]
    if not any(sentences for _, sentences in context):
        raise DataError("no sentences in its context", file=place, fix=LAYOUT)
    answer, given = question.get("answer"), question.get("supporting_facts")
    if (answer is None) != (given is None):
        what = "an answer without supporting_facts" if given is None else "no answer"
        raise DataError(what, file=place, fix="both, or neither in a file to be answered")
    label: tuple[Fact, ...] | None = None
    if given is not None:
        facts = [(each["title"], each["sentence"]) for each in parts["supporting_facts"]]
        label = tuple(dict.fromkeys(facts))
    fields = {
        "question": question["question"],
        "context": context,
        "answers": [] if answer is None else [answer],
    }
    return Example(question["_id"], fields, label, place)


def _name_parts(place: str, question: Mapping[str, Any]) -> _Parts:
    """The pairs of a question as records; DataError that says which one is none."""
    records: dict[str, Any] = {}
    try:
        for name, keys in KEYS.items():
            pairs = question.get(name) or []
            for number, pair in enumerate(pairs):
                if len(pair) != len(keys):
                    raise ValueError(f"'{name}.{number}' must be [{', '.join(keys)}]")
            records[name] = [dict(zip(keys, pair, strict=True)) for pair in pairs]
        parts: _Parts = fit(records, _Parts)
    except ValueError as error:
        raise _wrong_layout(place, error) from error
    return parts


def _wrong_layout(place: object, error: object) -> DataError:
    return DataError(f"not in HotpotQA's layout: {error}", file=place, fix=LAYOUT)


def _count_lost(example: Example) -> int:
    there = {
        (title, number)
        for title, sentences in example.fields["context"]
        for number in range(len(sentences))
    }
    return sum(fact not in there for fact in example.label or ())
