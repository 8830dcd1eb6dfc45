"""`plmctl data augment`: a larger training set, with words replaced as TinyBERT does (Jiao et al.,
2020, algorithm 1).

`out` has the files of the task as they are, but a training file in which up to `copies` changed
copies follow each example,
with its label or its tags: `task.path=<out>` trains on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.terminal import tell
from plmctl.distill.augmentation import Augmenter, copies
from plmctl.distill.function_words import ENGLISH
from plmctl.distill.neighbours import Neighbours
from plmctl.run.build import build
from plmctl.run.identity import identity
from plmctl.run.loading import load
from plmctl.storage.resumable import file_hash, new_folder, write_folder
from plmctl.tasks import files
from plmctl.tasks.base import Task
from plmctl.tasks.sheet import Sheet
from plmctl.tasks.tagged_sheet import TaggedSheet
from plmctl.training.distributed import device_of

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.run.compose import Flags
from plmctl.run.plugins import option


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """Write `out` and say what is in it."""
    out, (task, sheet) = new_folder(cfg.out), _task(cfg, flags)
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
    named = _named(task)
    name = named["train"][0].removesuffix(".gz")
    job = {
        "made by": "plmctl data augment",
        "model": identity(loaded.source),
        "train": file_hash(named["train"][1]),
        **{
            key: cfg[key] and file_hash(Path(cfg[key]).expanduser())
            for key in ("vectors", "stop_words")
        },
        **{key: cfg[key] for key in ("copies", "rate", "candidates", "seed", "tagged_words")},
    }
    counted = augmenter.seen
    counted["examples"] = 0

    def of(rows: Sequence[Any], first: int) -> Iterator[str]:
        texts = [
            (n, role, text) for n, row in enumerate(rows) for role, text in sheet.texts(row).items()
        ]
        stay = [
            [] if cfg.tagged_words else sheet.tagged(rows[n]).get(role, []) for n, role, _ in texts
        ]
        slots = augmenter([text for _, _, text in texts], stay)
        places: list[dict[str, Any]] = [{} for _ in rows]
        for (n, role, _), found in zip(texts, slots, strict=True):
            places[n][role] = found
        for n, row in enumerate(rows):
            draws = np.random.default_rng([cfg.seed, first + n])
            others = copies(
                sheet.texts(row), places[n], count=cfg.copies, rate=cfg.rate, draws=draws
            )
            counted["examples"] += bool(places[n]) + len(others)
            yield from (sheet.line(row), *(sheet.line(row, other) for other in others))

    beside: dict[str, Path | str] = {
        other: file for split, (other, file) in named.items() if split != "train"
    }
    begin = "" if sheet.header is None else sheet.line(sheet.header)
    write_folder(out, name, job, sheet.rows, of=of, begin=begin, others=beside, state=counted)
    _report(
        cfg, sum(bool(sheet.texts(row)) for row in sheet.rows), counted, vectors is not None, flags
    )
    return 0


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


def _named(task: Task) -> dict[str, tuple[str, Path]]:
    """{split: (name of its file in the new folder, the file)}; names that the task finds there."""
    single = files.is_single(task.path)  # it would answer for every split
    found = {}
    for split, patterns in task.reader.splits.items():
        if split == "train" or (not single and task.has(split)):
            file = files.need(task.path, split, patterns, folder=getattr(task.reader, "folder", ""))
            own = isinstance(task.path, str) and not single
            end = (
                "".join(Path(file.name).suffixes[-2:]) if file.name.endswith(".gz") else file.suffix
            )
            found[split] = (file.name if own else f"{split}{end}", file)
    return found


def _words(file: Path) -> frozenset[str]:
    return frozenset(
        line.strip().lower() for _, line in files.lines(files.existing(file)) if line.strip()
    )


def _report(
    cfg: DictConfig, before: int, counted: dict[str, int], vectors: bool, flags: Flags
) -> None:
    if not counted["replaceable"]:
        told = (
            f"no word of the {before:,} examples could be replaced;"
            f" {cfg.out} is the training set as it was"
        )
        tags = "columns" in cfg.task and "tags" in cfg.task.columns and not cfg.tagged_words
        raise UsageError(
            told + ("\n  fix: tagged_words=true, where no word has the tag O" if tags else "")
        )
    if flags.json:
        tell(json.dumps({"out": cfg.out, "before": before, **counted}))
        return
    several = counted["of several tokens"]
    stayed = (
        f"; {several:,} of several tokens stayed (vectors=<file> replaces them)"
        if several and not vectors
        else ""
    )
    tell(
        f"{cfg.out}: {before:,} examples became {counted['examples']:,}\n  of {counted['words']:,}"
        f" words but function words, {counted['replaceable']:,} may be replaced{stayed}\nnext:"
        f" plmctl finetune task={cfg.task.get('name')} task.path={cfg.out}"
        f" ...{option(flags.plugins)}"
    )
