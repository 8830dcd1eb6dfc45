"""Which model replaces words of which training set, and how, for `plmctl data augment`."""

from __future__ import annotations

import json
from pathlib import Path

from plmctl.artifacts.identity import identity
from plmctl.artifacts.loading import load
from plmctl.config.build import build
from plmctl.config.writing import Augment
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.terminal import tell
from plmctl.datasets.after_writing import spell_next
from plmctl.distill.augmentation import Augmenter
from plmctl.distill.augmented import Augmentation
from plmctl.knowledge.word_vectors import Neighbours
from plmctl.storage.resumable import hash_file, new_folder
from plmctl.tasks.readers import files
from plmctl.tasks.sheet import Sheet
from plmctl.tasks.tagged_sheet import TaggedSheet
from plmctl.tasks.task import Task, as_task
from plmctl.text.function_words import ENGLISH
from plmctl.text.inputs import need_lines
from plmctl.training.processes.world import device_of


def augment(spec: Augment) -> int:
    """Write `out` and say what is in it."""
    out, work = new_folder(spec.out), plan_augmentation(spec)
    work.write(out)
    before, counted, several = work.examples, work.counted, work.counted["of several tokens"]
    if not counted["replaceable"]:
        what = f"no word of the {before:,} examples could be replaced"
        tags = "columns" in spec.task and "tags" in spec.task.columns and not spec.tagged_words
        fix = "\n  fix: tagged_words=true, where no word has the tag O" if tags else ""
        raise UsageError(f"{what}; {spec.out} is the training set as it was{fix}")
    if spec.provenance.json:
        tell(json.dumps({"out": spec.out, "before": before, **counted}))
        return 0
    stayed = f"; {several:,} of several tokens stayed (vectors=<file> replaces them)"
    tell(
        f"{spec.out}: {before:,} examples became {counted['examples']:,}\n"
        f"  of {counted['words']:,} words but function words, {counted['replaceable']:,} may be"
        f" replaced{stayed if several and spec.vectors is None else ''}\n"
        f"{spell_next(spec, spec.task.get('name'), work.task)}"
    )
    return 0


def plan_augmentation(spec: Augment) -> Augmentation:
    """The augmentation that the settings of the command describe, with its model loaded."""
    task, sheet = _open_task(spec)
    given = {"vectors": spec.vectors, "stop_words": spec.stop_words}
    read = {name: None if path is None else files.existing(path) for name, path in given.items()}
    stop = ENGLISH if read["stop_words"] is None else _read_words(read["stop_words"])
    vectors = None if read["vectors"] is None else Neighbours.read(read["vectors"])
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
    hashes = {name: None if file is None else hash_file(file) for name, file in read.items()}
    return Augmentation(
        task=task,
        sheet=sheet,
        augmenter=augmenter,
        copies=spec.copies,
        rate=spec.rate,
        seed=spec.seed,
        tagged_words=spec.tagged_words,
        how={"model": identity(loaded.source), "candidates": spec.candidates, **hashes},
    )


def _open_task(spec: Augment) -> tuple[Task, Sheet | TaggedSheet]:
    """The task and its training file; ConfigError for a task without a table of texts or of
    tagged words.
    """
    if spec.task is None:
        what, fix = "must be given: whose training set is it?", "task=sst2 task.path=<folder>"
        raise ConfigError("task", ..., what, fix=fix)
    task = as_task(build(spec.task, {"pooling": "first"}, spec.plugins, path="task"))
    sheet: Sheet | TaggedSheet | None = None
    if task:
        sheet = Sheet.of(task, "train") or TaggedSheet.of(task, "train")
    if spec.tagged_words and isinstance(sheet, Sheet):
        raise ConfigError("tagged_words", True, "false: the words of this task have no tags")
    if task is None or sheet is None:
        allowed = (
            "only tasks of this kind are augmented: a class or a score for texts in columns of a"
            " table (classification, regression, GLUE's), or tags of words"
        )
        raise ConfigError("task", spec.task.get("name"), allowed)
    return task, sheet


def _read_words(file: Path) -> frozenset[str]:
    return frozenset(line.strip().lower() for _, line in need_lines(file) if line.strip())
