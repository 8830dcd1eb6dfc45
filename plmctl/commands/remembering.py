"""`teacher_cache`: which answers of which teacher are kept, and whether they can come again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from omegaconf import DictConfig

from plmctl.commands.common import Session
from plmctl.core.errors import ConfigError
from plmctl.core.locate import locate
from plmctl.distill.base import Teacher
from plmctl.distill.cache import Cached
from plmctl.distill.distillation import Distillation
from plmctl.run.identity import identity
from plmctl.run.loading import Loaded
from plmctl.tasks.base import Task


def kept(session: Session, teacher: Teacher, loaded: Loaded, *, rows: int) -> Teacher:
    """`teacher` itself, or with `teacher_cache` one that reads from there what it answered
    before.
    """
    folder = session.cfg.get("teacher_cache")
    if folder is None:
        return teacher
    return Cached(
        teacher=teacher,
        folder=Path(folder).expanduser(),
        identity=identity(loaded.source),
        rows=rows,
        say=session.say,
    )


def check_cache(cfg: DictConfig, task: Task, plugins: Sequence[str] = ()) -> None:
    """ConfigError where nothing could be kept: no teacher, a method that asks it nothing, or a
    task that writes tokens.
    """
    if not cfg.get("teacher_cache"):
        return
    if not cfg.get("teacher"):
        raise ConfigError(
            "teacher_cache",
            cfg.teacher_cache,
            "null: there is no teacher whose answers would be kept",
        )
    if not issubclass(cast(type, locate(cfg.distill["_target_"], plugins)), Distillation):
        raise ConfigError(
            "teacher_cache",
            cfg.teacher_cache,
            "null: this method takes the teacher apart, and no answers of it",
        )
    if not task.has_classes:
        raise ConfigError(
            "teacher_cache",
            cfg.teacher_cache,
            "null: the answers of a task that writes are tokens x vocabulary",
        )
