"""The texts behind saved predictions, read again from the files of the task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.core.errors import DataError, PlmctlError
from plmctl.report.decided import read_task
from plmctl.report.subject import SplitPredictions


def load_texts(found: SplitPredictions) -> tuple[Sequence[Mapping[str, Any]] | None, str]:
    """(the fields of every example of a split, in the order of its predictions; or why they cannot
    be read).
    """
    try:
        return _fields(found), ""
    except PlmctlError as error:
        return None, f"{found.run.name}: without the texts: {str(error).splitlines()[0]}."


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


def _fields(found: SplitPredictions) -> Sequence[Mapping[str, Any]]:
    run = found.run
    task = read_task(run.folder, run.plugins)
    if task is None:
        raise DataError("its config.yaml names no task or no model", file=run.folder)
    examples = task.read(found.split)
    if [example.id for example in examples] != [row["id"] for row in found.rows]:
        raise DataError(
            f"the files of the task are other ones by now: {task.path}", file=run.folder
        )
    return [example.fields for example in examples]
