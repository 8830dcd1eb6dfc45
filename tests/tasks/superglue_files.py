"""Rows of SuperGLUE, AX, RACE, ARC, XNLI and others in the layouts in which they are published."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from plmctl.config.build import build, plain
from plmctl.config.compose import compose
from plmctl.core.errors import DataError
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task

PASSAGE = "Paris (CNN) Ana met Bo.\n@highlight\nAna is from Paris\n@highlight\nBo is not"
MULTIRC = {
    "idx": 3,
    "version": 1.1,
    "passage": {
        "text": "Ana and Bo met in Paris.",
        "questions": [
            {
                "question": "Who met?",
                "idx": 7,
                "answers": [
                    {"text": "Ana", "idx": 20, "label": 1},
                    {"text": "Cy", "idx": 21, "label": 0},
                ],
            },
            {"question": "Where?", "idx": 8, "answers": [{"text": "Paris", "idx": 22, "label": 1}]},
        ],
    },
}
RECORD: dict[str, Any] = {
    "source": "CNN",
    "passage": {
        "text": PASSAGE,
        "entities": [
            {"start": 0, "end": 4},
            {"start": 7, "end": 9},
            {"start": 12, "end": 14},
            {"start": 20, "end": 21},
            {"start": 35, "end": 37},
        ],
    },
    "qas": [
        {
            "query": "@placeholder was there with Bo",
            "answers": [
                {"start": 12, "end": 14, "text": "Ana"},
                {"start": 35, "end": 37, "text": "Ana"},
            ],
            "idx": 5,
        },
        {"query": "They met in @placeholder", "answers": [{"text": "Paris"}], "idx": 6},
    ],
    "idx": 2,
}
WSC = {
    "text": 'Mark told Pete lies. "He should have been more truthful," said Al.',
    "target": {"span2_index": 4, "span1_index": 0, "span1_text": "Mark", "span2_text": "He"},
    "idx": 1,
    "label": True,
}
COPA = {
    "premise": "My body cast a shadow over the grass.",
    "choice1": "The sun was rising.",
    "choice2": "The grass was cut.",
    "question": "cause",
    "label": 0,
    "idx": 0,
}
BOOLQ = {"question": "is it wet", "passage": "Rain -- It fell.", "idx": 4, "label": True}
CB = {"premise": "A. B: I doubt it.", "hypothesis": "it is", "label": "contradiction", "idx": 9}
RTE = {"premise": "A fell.", "hypothesis": "A stood.", "label": "not_entailment", "idx": 2}


def write(file: Path, *rows: Any) -> Path:
    """JSON lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


ARTICLE: dict[str, Any] = {
    "answers": ["B", "A"],
    "options": [["cats", "dogs", "cows", "pigs"], ["1", "2", "3", "4"]],
    "questions": ["He likes _ best.", "How many?"],
    "article": "He likes dogs. He has one.",
    "id": "high7.txt",
}
ARC = {
    "id": "Mercury_1",
    "question": {"stem": "Which?", "choices": [{"text": f"no {n}", "label": n} for n in "ABCD"]},
    "answerKey": "C",
}
HELLASWAG = {
    "ind": 24,
    "activity_label": "Roof",
    "ctx_a": "A man sits.",
    "ctx_b": "he",
    "ctx": "A man sits. he",
    "split": "val",
    "split_type": "zeroshot",
    "label": 3,
    "endings": ["a.", "b.", "c.", "d."],
    "source_id": "activitynet~v_1",
}
ROWS: dict[str, Any] = {  # by task
    "boolq": BOOLQ,
    "cb": CB,
    "copa": COPA,
    "multirc": MULTIRC,
    "record": RECORD,
    "wsc": WSC,
    "race": ARTICLE,
    "arc": ARC,
    "hellaswag": HELLASWAG,
}
XNLI_COLUMNS = (
    "language\tgold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse"
    "\tsentence2_parse\tsentence1\tsentence2\tpromptID\tpairID\tgenre\tlabel1\tlabel2\tlabel3"
    "\tlabel4\tlabel5\tsentence1_tokenized\tsentence2_tokenized\tmatch"
)
XNLI = f"{XNLI_COLUMNS}\nde\tneutral\t\t\t\t\tEs war.\tIst es?\t1\t1\tx\t\t\t\t\t\tx\ty\tTrue\n"
DIAGNOSTIC_COLUMNS = (
    "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\tHypothesis"
    "\tLabel"
)
DIAGNOSTICS = f"{DIAGNOSTIC_COLUMNS}\n\t\tNegation\t\tNews\tIt was.\tIt was not.\tcontradiction\n"


@functools.cache
def compose_task(name: str, words: tuple[str, ...]) -> dict[str, Any]:
    """The node of a task as conf/ has it."""
    given = [f"task={name}", "task.path=x", "checkpoint=null", *words]
    node: dict[str, Any] = plain(compose("finetune", None, given).task)
    return node


def make_task(name: str, path: Any, *words: str) -> Task:
    """A task as conf/ has it, with these files and settings."""
    where = path if isinstance(path, dict) else str(path)
    task: Task = build({**compose_task(name, words), "path": where}, path="task")
    return task


def read_one(name: str, folder: Path, row: Any, split: str = "train") -> Example:
    """The first example of a file with that row."""
    write(folder / f"{split}.jsonl", row)
    return make_task(name, folder).read(split)[0]


def assert_refused(name: str, folder: Path, row: Any, message: str) -> None:
    """The row is refused with its file, its line and what was expected."""
    with pytest.raises(DataError, match=message) as refused:
        read_one(name, folder, row)
    assert "train.jsonl:1" in str(refused.value)
