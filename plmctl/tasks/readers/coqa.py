"""CoQA's JSON as examples: questions about a story, with the earlier turns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import read_layout
from plmctl.tasks.readers.squad import MISPLACED, SquadFiles, leave_unanswered
from plmctl.tasks.record import Example
from plmctl.tasks.scores.squad import normalise_english

LAYOUT = (
    "data -> id, source, story, questions -> input_text, turn_id; answers -> input_text, turn_id,"
    " span_start, span_end, span_text; additional_answers -> name -> such answers"
)
KINDS = ("span", "yes", "no", "unknown")  # kinds of answers, by the number of their label
_WORD = re.compile(r"\S+")


class _Question(TypedDict):
    input_text: str
    turn_id: int


class _Answer(TypedDict):
    input_text: str
    turn_id: int
    span_start: int  # -1: unknown
    span_end: int
    span_text: str


class _Further(TypedDict):
    input_text: str


class _Story(TypedDict):
    id: str
    source: str
    story: str
    questions: list[_Question]
    answers: NotRequired[list[_Answer] | None]
    additional_answers: NotRequired[dict[str, list[_Further]] | None]


class _Content(TypedDict):
    data: list[_Story]


@part_of("reader")
class CoqaFiles(SquadFiles):
    """data -> id, source, story, questions, answers, additional_answers (Reddy et al., 2019,
    arXiv:1808.07042).

    The label of an example is `(kind, span, rationale)`: one of `KINDS`, and the characters [start,
    end) of the answer and of its rationale. None stands for an unknown one. The source of a story
    is a slice. An answer is not always in the words of the story. Its span is the part of the
    rationale with the best F1, the first of equals, and the whole rationale where they share no
    word.
    """

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        """The questions of one file, in its order; DataError for another layout."""
        content = read_layout(file, _Content, name="CoQA", layout=LAYOUT)
        examples = [
            example for story in content["data"] for example in _list_questions(file, story)
        ]
        if not examples:
            raise DataError("no questions", file=file, fix=LAYOUT)
        return examples if labelled else leave_unanswered(examples)


def _list_questions(file: Path, story: _Story) -> Iterator[Example]:
    answers, history = story.get("answers"), list[str]()
    further = story.get("additional_answers") or {}
    for name, given in {"answers": answers, **further}.items():
        if given is not None and len(given) != len(story["questions"]):
            problem = f"{len(story['questions'])} questions, and {len(given)} in {name}"
            raise DataError(problem, file=f"{file} story {story['id']}", fix=LAYOUT)
    for number, question in enumerate(story["questions"]):
        place = f"{file} story {story['id']}, turn {question['turn_id']}"
        fields = {
            "question": question["input_text"],
            "context": story["story"],
            "history": list(history),
            "answers": [],
            "dialogue": story["id"],
            "turn": question["turn_id"],
        }
        label: Any = None
        if answers is not None:
            answer = answers[number]
            if answer["turn_id"] != question["turn_id"]:
                problem = f"its answer has turn_id {answer['turn_id']}"
                raise DataError(problem, file=place, fix="answers in the order of questions")
            others = [own[number]["input_text"] for own in further.values()]
            fields["answers"] = [answer["input_text"], *others]
            label = _label(story["story"], answer, place)
            history += [question["input_text"], answer["input_text"]]
        name, sets = f"{story['id']} {question['turn_id']}", (story["source"],)
        yield Example(name, fields, label, place, slices=sets)


def _label(story: str, answer: _Answer, place: str) -> Any:
    said = normalise_english(answer["input_text"])
    start, end = answer["span_start"], answer["span_end"]
    if said == "unknown" or start == end == -1:
        return ("unknown", None, None)
    if not 0 <= start < end <= len(story):
        problem = f"its span is {start}..{end} of {len(story)} characters"
        raise DataError(problem, file=place, fix="count from 0; both -1 where it is unknown")
    if story[start:end].split() != answer["span_text"].split():
        return MISPLACED
    if said in KINDS:
        return (said, None, (start, end))
    first, last = find_best_part(story[start:end], answer["input_text"])
    return ("span", (start + first, start + last), (start, end))


def find_best_part(text: str, answer: str) -> tuple[int, int]:
    """The characters [start, end) of the words of `text` whose F1 with the answer is best."""
    wanted = Counter(normalise_english(answer).split())
    words = [(m.start(), m.end(), normalise_english(m[0]).split()) for m in _WORD.finditer(text)]
    shared = [n for n, (_, _, own) in enumerate(words) if wanted.keys() & set(own)]
    best, span = 0.0, (0, len(text))
    for place, first in enumerate(shared):
        for last in shared[place:]:
            tokens = [token for _, _, own in words[first : last + 1] for token in own]
            same = sum((Counter(tokens) & wanted).values())
            f1 = 2 * same / (len(tokens) + wanted.total())
            if f1 > best:
                best, span = f1, (words[first][0], words[last][1])
    begin = span[0] + len(text[slice(*span)]) - len(text[slice(*span)].lstrip())
    return begin, span[0] + len(text[slice(*span)].rstrip())
