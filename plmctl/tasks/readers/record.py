"""ReCoRD's files as examples: a passage with its entities, and a sentence in which one is
missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.values import Whole
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import FileRecord, SplitFiles, read_records, require_labels
from plmctl.tasks.record import Example

SHOWN = (
    '{"passage": {"text": "...", "entities": [{"start": 0, "end": 4}]}, "qas": [{"idx": 0, "query":'
    ' "... @placeholder ...", "answers": [{"start": 0, "end": 4, "text": "Paris"}]}]}'
)
GAP = "@placeholder"
HIGHLIGHT = "@highlight"  # stands before each sentence of the summary


class _Span(TypedDict):
    start: Whole
    end: Whole  # the position of the last character


class _Answer(TypedDict):
    text: str


class _Question(TypedDict):
    idx: int
    query: str
    answers: NotRequired[list[_Answer] | None]


class _Passage(TypedDict):
    text: str
    entities: list[_Span]


class _Paragraph(TypedDict):
    passage: _Passage
    qas: list[_Question]


@part_of("reader")
class RecordFiles(SplitFiles):
    """JSON lines of SuperGLUE, a passage each (Zhang et al., 2018, arXiv:1810.12885; Wang et al.,
    2019, arXiv:1905.00537).

    `fields` of an example: `text`, the passage without the marks of its summary; `candidates`, the
    names of its entities, each once; `choices`, the query with each of them in its gap; `answers`,
    the right names, which are its label.
    """

    bare_test = True

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        paragraphs = read_records(file, _Paragraph, shown=SHOWN)
        made = [example for record in paragraphs for example in _list_questions(record)]
        if not made:
            raise DataError("no questions", file=file, fix=SHOWN)
        return require_labels(made, labelled)


def _list_questions(record: FileRecord) -> Iterator[Example]:
    passage = record.values["passage"]
    text = passage["text"]
    names = list(dict.fromkeys(_cut_out(text, span, record.place) for span in passage["entities"]))
    plain = " ".join(line for line in text.split("\n") if line.strip() != HIGHLIGHT)
    for question in record.values["qas"]:
        place = f"{record.place}, question {question['idx']}"
        if GAP not in question["query"]:
            raise DataError(f"the query has no {GAP}", file=place, fix=SHOWN)
        if len(names) < 2:
            raise DataError("the passage has not two entities", file=place)
        given = question.get("answers")
        fields = {
            "text": plain,
            "candidates": names,
            "choices": [question["query"].replace(GAP, name) for name in names],
        }
        if given is None:
            yield Example(str(question["idx"]), fields, None, place)
            continue
        answers = list(dict.fromkeys(each["text"] for each in given))
        if not set(answers) & set(names):
            problem = f"no entity of the passage is an answer ({', '.join(answers)})"
            raise DataError(problem, file=place)
        yield Example(str(question["idx"]), {**fields, "answers": answers}, tuple(answers), place)


def _cut_out(text: str, span: Mapping[str, int], place: str) -> str:
    start, last = span["start"], span["end"]
    if not start <= last < len(text) or not text[start : last + 1].strip():
        problem = f"an entity stands at {start}..{last} of {len(text)} characters"
        raise DataError(problem, file=place, fix="count from 0; end: its last character")
    return text[start : last + 1]
