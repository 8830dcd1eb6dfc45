"""`plmctl eval --submission`: the files that the leader board of a task accepts."""

from __future__ import annotations

from typing import Any

from plmctl.artifacts.loading import Loaded
from plmctl.core.errors import UsageError
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
    raise UsageError(f"--submission: no leader board of {task.name} is known, or no file of it")


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
        wanted = ", ".join(task.submission) or "none: plmctl knows no leader board of it"
        what = f"no split of {task.name} in {task.splits.path} can be submitted ({wanted})"
        raise UsageError(f"--submission: {what}")
    for name in files.values():
        submission_file(output.path, name)
    for split, name in files.items():
        rows = inference.encode_split(task, split, task.read(split), loaded.tokenizer)
        how: Any = {"precision": precision, "digits": precision.digits, "runtime": runtime}
        predictions, _ = predict(loaded.model, task, rows, batch_size=batch_size, **how)
        predictions, _ = decide_again(loaded, task, predictions, precision.digits)
        content = submit(task, predictions, name)
        tell(write_for_board(output, name, content))
