"""`plmctl eval --submission`: the files that the leader board of a task accepts."""

from __future__ import annotations

from typing import Any

from plmctl.artifacts.loading import Loaded
from plmctl.core.errors import UsageError
from plmctl.core.spelling import spell_word
from plmctl.core.terminal import tell
from plmctl.runtime.base import Runtime
from plmctl.tasks import inference
from plmctl.tasks.capabilities import submit
from plmctl.tasks.predictions import submission_file
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.training.device.precision import Precision
from plmctl.use.asked_task import Destination, write_for_board
from plmctl.use.calibrating import decide_again
from plmctl.use.predict import predict


def read_boards(task: Task) -> dict[str, list[Example]]:
    """The examples of every split that a leader board asks for, and that exists."""
    if found := {name: task.read(name) for name in task.submission if task.splits.has(name)}:
        return found
    raise _explain_absent(task)


def _explain_absent(task: Task) -> UsageError:
    """The error of a task without a leader board, or without the files that it asks for."""
    if not task.submission:
        return UsageError(f"--submission: plmctl knows no leader board of {task.name}")
    known = task.splits.reader.splits
    looked = "; ".join(f"{name}: {', '.join(known.get(name, ()))}" for name in task.submission)
    fix = spell_word(f"task.path={{{next(iter(task.submission))}: <the test file>}}")
    return UsageError(
        f"--submission: no test file of {task.name} in {task.splits.path}; looked for {looked}"
        f"\n  fix: {fix}"
    )


def submit_splits(
    output: Destination,
    loaded: Loaded,
    task: Task,
    *,
    precision: Precision,
    batch_size: int,
    runtime: Runtime,
) -> None:
    """Write the file of a leader board for every split that exists."""
    files = {split: name for split, name in task.submission.items() if task.splits.has(split)}
    if not files:
        raise _explain_absent(task)
    for name in files.values():
        submission_file(output.path, name)
    for split, name in files.items():
        rows = inference.encode_split(task, split, task.read(split), loaded.tokenizer)
        how: Any = {"precision": precision, "digits": precision.digits, "runtime": runtime}
        predictions, _ = predict(loaded.model, task, rows, batch_size=batch_size, **how)
        predictions, _ = decide_again(loaded, task, predictions, precision.digits)
        content = submit(task, predictions, name)
        tell(write_for_board(output, name, content))
