"""Capabilities that some tasks have, as protocols, and what tools do with any task by them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from plmctl.core.batch import Rows
from plmctl.noise.base import Noise
from plmctl.tasks.readers.label_codes import rename
from plmctl.tasks.record import Arrays, Example, Examples, Predictions, as_number
from plmctl.tasks.task import Task
from plmctl.text.vocab import Vocab


@runtime_checkable
class Noised(Protocol):
    """A task that may change its rows in training."""

    def noise(self, vocab: Vocab) -> Noise | None:
        """The noise that changes the rows anew in every epoch; None: no noise."""
        ...


@runtime_checkable
class Explained(Protocol):
    """A task with more for an ensemble than its predictions have."""

    def explain(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        """The predictions with all that an ensemble averages."""
        ...

    def settle(self, joined: dict[str, Any], rows: Predictions) -> dict[str, Any]:
        """The joined answer of an ensemble with the additions of the task.

        Args:
            rows: The results of `explain` for each member.
        """
        ...


@runtime_checkable
class Embedded(Protocol):
    """A task that learns vectors of texts from a teacher with a tokenizer of its own; each text of
    an example is a row, in the order of `texts`.
    """

    def lesson(self, example: Example) -> str:
        """The text of an example whose vector the teacher gives."""
        ...


@runtime_checkable
class Submitted(Protocol):
    """A task whose leader board has a file format of its own."""

    def submit(self, predictions: Predictions) -> str:
        """The content of the file."""
        ...


def find_lesson(task: object) -> Callable[[Example], str] | None:
    """The text of an example that a teacher embeds; None: it reads the rows of the student."""
    return task.lesson if isinstance(task, Embedded) else None


def noise_of(task: Task, vocab: Vocab) -> Noise | None:
    """The noise of a task in training; None: its rows stay as they are."""
    return task.noise(vocab) if isinstance(task, Noised) else None


def predict_fully(
    task: Task, logits: Arrays, rows: Rows, examples: Examples
) -> list[dict[str, Any]]:
    """The predictions of a task with all that an ensemble averages, which may be more than files
    have.
    """
    if isinstance(task, Explained):
        return task.explain(logits, rows, examples)
    predictions = task.predict(logits, rows, examples)
    if task.answer:
        task.answer.weigh(predictions, logits[task.facts.label_name], rows, task.label_names)
    return predictions


def settle(task: Task, joined: dict[str, Any], rows: Predictions) -> dict[str, Any]:
    """The answer of an ensemble, joined from results of `explain`, with the task's additions."""
    return task.settle(joined, rows) if isinstance(task, Explained) else joined


def submit(task: Task, predictions: Predictions, name: str = "") -> str:
    """The content of a file as the leader board takes it. Labels are as the files have them.

    GLUE's is `index <tab> prediction`, scores with three digits; SuperGLUE's in .jsonl has lines of
    `idx` and `label`; CLUE's in .json lines of `id` and `label`, or one object {id: answer} of a
    task that is `keyed`.
    """
    codes = {name: code for code, name in task.label_codes.items()}
    if codes:
        predictions = [{**p, "guess": rename(p["guess"], codes)} for p in predictions]
    if isinstance(task, Submitted):
        return task.submit(predictions)
    if task.facts.keyed:
        answers = {p["id"]: p["guess"] for p in predictions}
        return json.dumps(answers, ensure_ascii=False, indent=0) + "\n"
    if name.endswith((".jsonl", ".json")):
        key = "idx" if name.endswith(".jsonl") else "id"
        rows = [{key: as_number(p["id"]), "label": p["guess"]} for p in predictions]
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    guesses = [
        (p["id"], f"{p['guess']:.3f}" if isinstance(p["guess"], float) else p["guess"])
        for p in predictions
    ]
    return "\n".join(["index\tprediction", *(f"{n}\t{guess}" for n, guess in guesses)]) + "\n"
