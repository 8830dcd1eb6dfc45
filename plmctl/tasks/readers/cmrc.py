"""CMRC 2018 in both of its layouts: SQuAD's, and the older one, whose answers are texts alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import read_layout
from plmctl.tasks.readers.squad import MISPLACED, SquadFiles, leave_unanswered
from plmctl.tasks.record import Example

OLDER = "[{context_text, qas: [{query_id, query_text, answers: [text, ...]}, ...]}, ...]"


class _Query(TypedDict):
    query_id: str
    query_text: str
    answers: NotRequired[list[str] | None]


class _Text(TypedDict):
    context_text: str
    qas: list[_Query]


@part_of("reader")
class CmrcFiles(SquadFiles):
    """Reads SQuAD's layout, and lists of texts with their questions (cmrc2018_train.json of the
    shared task): there an answer is where its text occurs first (Cui et al., 2019,
    arXiv:1810.07366; ymcui/cmrc2018, README).
    """

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        listed = files.read_start(file).startswith("[")
        if not listed or '"question"' in files.read_text(file):  # a row for each question
            return super().read_file(file, columns, labelled=labelled)
        content = read_layout(file, list[_Text], name="CMRC 2018", layout=OLDER)
        examples = [
            _make_example(file, text["context_text"], query, labelled)
            for text in content
            for query in text["qas"]
        ]
        if not examples:
            raise DataError("no questions", file=file, fix=OLDER)
        return examples if labelled else leave_unanswered(examples)


def _make_example(file: Path, context: str, query: _Query, labelled: bool) -> Example:
    label: Any = None
    place = f"{file} question {query['query_id']}"
    if labelled and "answers" not in query:
        raise DataError(f"no field answers; found {', '.join(query)}", file=place, fix=OLDER)
    if answers := query.get("answers") or []:
        answer = answers[0]
        start = context.find(answer) if answer else -1
        label = (start, start + len(answer)) if start >= 0 else MISPLACED
    fields = {"question": query["query_text"], "context": context, "answers": answers}
    return Example(query["query_id"], fields, label, place)
