"""The last line of the commands that write a data set with a model: how one trains on it."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.artifacts.assemble import settle_lengths
from plmctl.artifacts.loading import open_source
from plmctl.config.plugins import option
from plmctl.config.writing import DataWriting
from plmctl.core.spelling import spell_setting
from plmctl.tasks.task import Task


def spell_next(spec: DataWriting, name: str, task: Task, columns: Sequence[str] = ()) -> str:
    """The fine-tuning on what was written, of the model that wrote it, in rows that fit it.

    Args:
        spec: of the command.
        name: of the part file of the task.
        task: as it was read.
        columns: words that say which columns are read.
    """
    config = open_source(spec.checkpoint, plugins=spec.plugins).config
    bound = settle_lengths(config, plugins=spec.plugins)["position"].get("max_length")
    lengths = task.fit_lengths(task.longest if bound is None else min(bound, task.longest))
    fitting = [f"task.{key}={length}" for key, length in lengths.items()]
    files = spell_setting("task.path", spec.out)
    words = [f"task={name}", files, *columns, *fitting]
    line = " ".join(["plmctl finetune", *words, spell_setting("checkpoint", spec.checkpoint)])
    return f"next: {line}{option(spec.plugins)}  # or another checkpoint, such as a student"
