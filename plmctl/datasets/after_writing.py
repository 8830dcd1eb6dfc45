"""The last line of the commands that write a data set with a model: how one trains on it."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.artifacts.assemble import settle_lengths
from plmctl.artifacts.loading import Loaded
from plmctl.config.plugins import option
from plmctl.core.spelling import spell_setting
from plmctl.tasks.task import Task


def spell_next(loaded: Loaded, task: Task, words: Sequence[str], *, checkpoint: str) -> str:
    """The fine-tuning on what was written, of the model that wrote it, in rows that fit it.

    Args:
        words: The settings that name the task and its files.
        checkpoint: The model as the user names it.
    """
    plugins = loaded.source.plugins
    bound = settle_lengths(loaded.config, plugins=plugins)["position"].get("max_length")
    lengths = task.lengths.fit(
        task.lengths.longest if bound is None else min(bound, task.lengths.longest)
    )
    fitting = [f"task.{key}={length}" for key, length in lengths.items()]
    line = " ".join([*words, *fitting, spell_setting("checkpoint", checkpoint)])
    return (
        f"next: plmctl finetune {line}{option(plugins)}  # or another checkpoint, such as a student"
    )
