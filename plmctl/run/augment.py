"""Which model replaces words of which training set, and how, for `plmctl data augment`."""

from __future__ import annotations

import json
from pathlib import Path

from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.terminal import tell
from plmctl.distill.augmentation import Augmenter
from plmctl.distill.augmented import Augmentation
from plmctl.distill.function_words import ENGLISH
from plmctl.distill.neighbours import Neighbours
from plmctl.run.build import build
from plmctl.run.identity import identity
from plmctl.run.loading import load
from plmctl.run.plugins import option
from plmctl.run.writing import Augment
from plmctl.storage.resumable import hash_file, new_folder
from plmctl.tasks import files
from plmctl.tasks.base import Task
from plmctl.tasks.sheet import Sheet
from plmctl.tasks.tagged_sheet import TaggedSheet
from plmctl.training.processes.world import device_of


def augment(spec: Augment) -> int:
    """Write `out` and say what is in it."""
    out = new_folder(spec.out)
    work = augmentation(spec)
    work.write(out)
    _report(spec, work)
    return 0


def augmentation(spec: Augment) -> Augmentation:
    """The augmentation that the settings of the command describe, with its model loaded."""
    task, sheet = _task(spec)
    stop = ENGLISH if spec.stop_words is None else _words(Path(spec.stop_words).expanduser())
    vectors = None if spec.vectors is None else Neighbours.read(files.existing(spec.vectors))
    device, loaded = device_of(spec.device, "device"), load(spec.checkpoint, plugins=spec.plugins)
    augmenter = Augmenter(
        model=loaded.model.to(device),
        tokenizer=loaded.tokenizer,
        candidates=spec.candidates,
        stop=stop,
        vectors=vectors,
        batch_size=spec.batch_size,
        device=device,
    )
    read = {
        name: file and hash_file(Path(file).expanduser())
        for name, file in (("vectors", spec.vectors), ("stop_words", spec.stop_words))
    }
    how = {"model": identity(loaded.source), "candidates": spec.candidates, **read}
    return Augmentation(
        task=task,
        sheet=sheet,
        augmenter=augmenter,
        copies=spec.copies,
        rate=spec.rate,
        seed=spec.seed,
        tagged_words=spec.tagged_words,
        how=how,
    )


def _task(spec: Augment) -> tuple[Task, Sheet | TaggedSheet]:
    """The task and its training file; ConfigError for a task without a table of texts or of
    tagged words.
    """
    if spec.task is None:
        raise ConfigError(
            "task",
            ...,
            "must be given: whose training set is it?",
            fix="task=sst2 task.path=<folder>",
        )
    task = build(spec.task, {"pooling": "first"}, spec.plugins, path="task")
    sheet = (
        (Sheet.of(task, "train") or TaggedSheet.of(task, "train"))
        if isinstance(task, Task)
        else None
    )
    if spec.tagged_words and isinstance(sheet, Sheet):
        raise ConfigError("tagged_words", True, "false: the words of this task have no tags")
    if sheet is None:
        fitting = (
            "a class or a score for texts in columns of a table (classification, regression,"
            " GLUE's), or tags of words"
        )
        raise ConfigError(
            "task", spec.task.get("name"), f"only tasks of this kind are augmented: {fitting}"
        )
    return task, sheet


def _words(file: Path) -> frozenset[str]:
    return frozenset(
        line.strip().lower() for _, line in files.lines(files.existing(file)) if line.strip()
    )


def _report(spec: Augment, work: Augmentation) -> None:
    before, counted, vectors = work.examples, work.counted, work.augmenter.vectors is not None
    if not counted["replaceable"]:
        told = (
            f"no word of the {before:,} examples could be replaced;"
            f" {spec.out} is the training set as it was"
        )
        tags = "columns" in spec.task and "tags" in spec.task.columns and not spec.tagged_words
        raise UsageError(
            told + ("\n  fix: tagged_words=true, where no word has the tag O" if tags else "")
        )
    if spec.provenance.json:
        tell(json.dumps({"out": spec.out, "before": before, **counted}))
        return
    several = counted["of several tokens"]
    stayed = (
        f"; {several:,} of several tokens stayed (vectors=<file> replaces them)"
        if several and not vectors
        else ""
    )
    tell(
        f"{spec.out}: {before:,} examples became {counted['examples']:,}\n  of {counted['words']:,}"
        f" words but function words, {counted['replaceable']:,} may be replaced{stayed}\nnext:"
        f" plmctl finetune task={spec.task.get('name')} task.path={spec.out}"
        f" ...{option(spec.plugins)}"
    )
