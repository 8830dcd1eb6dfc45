"""`teacher_cache`: which answers of which teacher are kept, and whether they can come again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from omegaconf import DictConfig

from plmctl.commands.common import Session
from plmctl.config.build import locate
from plmctl.distill.base import Teacher
from plmctl.distill.cache import Cached
from plmctl.distill.distillation import Distillation
from plmctl.errors import ConfigError
from plmctl.loading import Loaded
from plmctl.tasks.base import Task
from plmctl.training.checkpoint import tensors_of

DECIDE = ("size", "pattern", "position", "model", "heads")  # nodes of a config that decide what a model answers


def kept(session: Session, teacher: Teacher, loaded: Loaded, *, rows: int) -> Teacher:
    """`teacher` itself, or with `teacher_cache` one that reads from there what it answered before."""
    folder = session.cfg.get("teacher_cache")
    if folder is None:
        return teacher
    return Cached(teacher=teacher, folder=Path(folder).expanduser(), identity=identity(loaded), rows=rows, say=session.say)


def check_cache(cfg: DictConfig, task: Task, plugins: Sequence[str] = ()) -> None:
    """ConfigError where nothing could be kept: no teacher, a method that asks it nothing, or a task that writes tokens."""
    if not cfg.get("teacher_cache"):
        return
    if not cfg.get("teacher"):
        raise ConfigError("teacher_cache", cfg.teacher_cache, "null: there is no teacher whose answers would be kept")
    if not issubclass(cast(type, locate(cfg.distill["_target_"], plugins)), Distillation):
        raise ConfigError("teacher_cache", cfg.teacher_cache, "null: this method takes the teacher apart, and no answers of it")
    if not task.has_classes:
        raise ConfigError("teacher_cache", cfg.teacher_cache, "null: the answers of a task that writes are tokens x vocabulary")


def identity(loaded: Loaded) -> str:
    """A hash of all that decides what a model answers to rows of ids: weights, config and tokenizer; not where it lies."""
    config = {name: loaded.config.get(name) for name in DECIDE}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    digest.update(loaded.tokenizer.fingerprint.encode())
    for name, tensor in sorted(tensors_of(loaded.model).items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
