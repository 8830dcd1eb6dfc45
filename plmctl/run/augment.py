"""Which model replaces words of which training set, and how, for `plmctl data augment`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plmctl.core.errors import ConfigError
from plmctl.distill.augmentation import Augmenter
from plmctl.distill.augmented import Augmentation
from plmctl.distill.function_words import ENGLISH
from plmctl.distill.neighbours import Neighbours
from plmctl.run.build import build
from plmctl.run.identity import identity
from plmctl.run.loading import load
from plmctl.storage.resumable import hash_file
from plmctl.tasks import files
from plmctl.tasks.base import Task
from plmctl.tasks.sheet import Sheet
from plmctl.tasks.tagged_sheet import TaggedSheet
from plmctl.training.processes.world import device_of

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.run.compose import Flags


def augmentation(cfg: DictConfig, flags: Flags) -> Augmentation:
    """The augmentation that the settings of the command describe, with its model loaded."""
    task, sheet = _task(cfg, flags)
    stop = ENGLISH if cfg.stop_words is None else _words(Path(cfg.stop_words).expanduser())
    vectors = None if cfg.vectors is None else Neighbours.read(files.existing(cfg.vectors))
    device, loaded = device_of(cfg.device, "device"), load(cfg.checkpoint, plugins=flags.plugins)
    augmenter = Augmenter(
        model=loaded.model.to(device),
        tokenizer=loaded.tokenizer,
        candidates=cfg.candidates,
        stop=stop,
        vectors=vectors,
        batch_size=cfg.batch_size,
        device=device,
    )
    read = {
        name: file and hash_file(Path(file).expanduser())
        for name, file in (("vectors", cfg.vectors), ("stop_words", cfg.stop_words))
    }
    how = {"model": identity(loaded.source), "candidates": cfg.candidates, **read}
    return Augmentation(
        task=task,
        sheet=sheet,
        augmenter=augmenter,
        copies=cfg.copies,
        rate=cfg.rate,
        seed=cfg.seed,
        tagged_words=cfg.tagged_words,
        how=how,
    )


def _task(cfg: DictConfig, flags: Flags) -> tuple[Task, Sheet | TaggedSheet]:
    """The task and its training file; ConfigError for a task without a table of texts or of
    tagged words.
    """
    if cfg.task is None:
        raise ConfigError(
            "task",
            ...,
            "must be given: whose training set is it?",
            fix="task=sst2 task.path=<folder>",
        )
    task = build(cfg.task, {"pooling": "first"}, flags.plugins, path="task")
    sheet = (
        (Sheet.of(task, "train") or TaggedSheet.of(task, "train"))
        if isinstance(task, Task)
        else None
    )
    if cfg.tagged_words and isinstance(sheet, Sheet):
        raise ConfigError("tagged_words", True, "false: the words of this task have no tags")
    if sheet is None:
        fitting = (
            "a class or a score for texts in columns of a table (classification, regression,"
            " GLUE's), or tags of words"
        )
        raise ConfigError(
            "task", cfg.task.get("name"), f"only tasks of this kind are augmented: {fitting}"
        )
    return task, sheet


def _words(file: Path) -> frozenset[str]:
    return frozenset(
        line.strip().lower() for _, line in files.lines(files.existing(file)) if line.strip()
    )
