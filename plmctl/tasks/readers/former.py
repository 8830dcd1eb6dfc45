"""Predictions that a run of another task has left."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from plmctl.core.errors import DataError
from plmctl.core.values import fit
from plmctl.storage.reading import parse_json_at
from plmctl.text.inputs import need_lines

Prediction = TypeVar("Prediction")


def read_former(folder: Path, kind: type[Prediction], *, task: str, fix: str) -> list[Prediction]:
    """The predictions of all splits that a run of another task has left in `folder`, each with the
    keys of the TypedDict `kind`; DataError with file and line for anything else, or for none.
    """
    found: list[Prediction] = []
    for file in sorted(folder.glob("*.jsonl")):
        for number, text in need_lines(file):
            try:
                found.append(fit(parse_json_at(text, file=file, line=number), kind))
            except ValueError as error:
                problem = f"no prediction of task={task}: {error}"
                raise DataError(problem, file=file, line=number, fix=fix) from error
    if not found:
        raise DataError("no predictions are there", file=folder, fix=fix)
    return found
