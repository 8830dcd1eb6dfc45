"""SQuAD's JSON as examples, every answer's character offset checked against its text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.errors import DataError
from plmctl.tasks import files
from plmctl.tasks.base import Example

LAYOUT = "data -> paragraphs -> context, qas -> id, question, answers -> text, answer_start"


class SquadFiles:
    """data -> paragraphs(context, qas(id, question, answers[text, answer_start], is_impossible)).

    (Rajpurkar et al., 2016; 2018.) In training, questions whose answer does not stand at its offset are dropped and counted.
    """

    def __init__(self, *, splits: Mapping[str, Sequence[str]], folder: str = "") -> None:
        self.splits = {split: list(patterns) for split, patterns in splits.items()}
        self.folder = folder
        self.skipped: dict[str, int] = {}

    def has(self, path: files.Where, split: str) -> bool:
        return files.locate(path, split, self.splits.get(split, []), folder=self.folder) is not None

    def read(self, path: files.Where, split: str, columns: Mapping[str, Any]) -> list[Example]:
        file = files.need(path, split, self.splits.get(split, []), folder=self.folder)
        found = self.read_file(file, columns)
        if not split.startswith("train"):
            return found
        kept = [example for example in found if example.label != "misplaced"]
        self.skipped[str(file)] = len(found) - len(kept)
        return kept

    def read_file(self, file: Path, columns: Mapping[str, Any], *, labelled: bool = True) -> list[Example]:
        try:
            data = json.loads(files.text(file))["data"]
            found = [_example(file, context, qa) for context, qa in _questions(data)]
        except json.JSONDecodeError as error:
            raise DataError(f"not JSON: {error.msg}", file=file, line=error.lineno) from error
        except (KeyError, TypeError) as error:
            raise DataError(f"not in SQuAD's layout: {error} is missing", file=file, fix=LAYOUT) from error
        if not found:
            raise DataError("no questions", file=file)
        return found


def _questions(data: list[Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for article in data:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                yield paragraph["context"], qa


def _example(file: Path, context: str, qa: Mapping[str, Any]) -> Example:
    """The label is (first character, last character + 1) of the first answer, None without one, "misplaced" if not there."""
    answers = qa.get("answers", [])
    label: Any = None
    if answers and not qa.get("is_impossible", False):
        text, start = str(answers[0]["text"]), int(answers[0]["answer_start"])
        label = (start, start + len(text)) if text and context[start : start + len(text)] == text else "misplaced"
    fields = {"question": qa["question"], "context": context, "answers": [answer["text"] for answer in answers]}
    return Example(id=str(qa["id"]), fields=fields, label=label, place=f"{file} question {qa['id']}")
