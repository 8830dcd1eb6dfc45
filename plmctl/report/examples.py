"""Saved predictions split by split, and the texts behind them, read again from the files of the
task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plmctl.core.errors import DataError, PlmctlError
from plmctl.report.page import Block, Heading
from plmctl.report.subject import ReportedRun, Subject

Rows = Sequence[Mapping[str, Any]]


def collect_by_split(
    subject: Subject, title: str, of: Callable[[ReportedRun, str, Rows], list[Block]]
) -> list[Block]:
    """The blocks of `of` for the predictions of every run and split, each with a heading; all under
    `title` if there are any.
    """
    blocks: list[Block] = []
    for run in subject.detailed:
        for split, rows in run.predictions.items():
            if own := of(run, split, rows):
                blocks += [Heading(f"{run.name}, {split}", 3), *own]
    return [Heading(title), *blocks] if blocks else []


def load_texts(run: ReportedRun, split: str) -> tuple[Sequence[Mapping[str, Any]] | None, str]:
    """(the fields of every example of a split, in the order of its predictions; or why they cannot
    be read).
    """
    try:
        return _fields(run, split), ""
    except PlmctlError as error:
        return None, f"{run.name}: without the texts: {str(error).splitlines()[0]}."


def has_class_probabilities(row: Mapping[str, Any]) -> bool:
    """Whether a prediction chooses one of several labels, each with its probability."""
    known, guess = row.get("probabilities"), row.get("guess")
    if isinstance(known, Mapping):
        return isinstance(guess, str) and guess in known
    return isinstance(known, list) and isinstance(guess, int) and 0 <= guess < len(known)


def join_texts(fields: Mapping[str, Any]) -> str:
    """The texts of an example on one line; without what only marks them."""
    words = [
        " ".join(value) if isinstance(value, list) and name == "words" else value
        for name, value in fields.items()
        if isinstance(value, str) or all(isinstance(each, str) for each in value)
    ]
    return " ‖ ".join(
        " / ".join(value) if isinstance(value, list) else str(value) for value in words
    )


def _fields(run: ReportedRun, split: str) -> Sequence[Mapping[str, Any]]:
    from plmctl.report.decided import read_task  # brings torch

    task = read_task(run.folder, run.plugins)
    if task is None:
        raise DataError("its config.yaml names no task or no model", file=run.folder)
    examples = task.read(split)
    if [example.id for example in examples] != [
        prediction["id"] for prediction in run.predictions[split]
    ]:
        raise DataError(
            f"the files of the task are other ones by now: {task.path}", file=run.folder
        )
    return [example.fields for example in examples]
