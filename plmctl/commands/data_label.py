"""`plmctl data label`."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from plmctl.config.build import MISSING, build
from plmctl.config.command import About, Command, Result
from plmctl.config.plugins import option
from plmctl.core.errors import AbsentData, ConfigError, DataError, UsageError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import WARN, counted, remark
from plmctl.core.values import Amount, Batch, Rate, Share
from plmctl.storage.resumable import new_folder, write_folder

if TYPE_CHECKING:
    from plmctl.artifacts.loading import Loaded
    from plmctl.datasets.label import Guess
    from plmctl.tasks.classification import Classification
    from plmctl.tasks.record import Example
    from plmctl.tasks.task import Task
    from plmctl.use.ensemble import Member

_KINDS = "tasks with one label for a text or a pair (classification, cloze, GLUE's)"


@dataclass(frozen=True)
class Label(Command):
    """Write a training set of texts with the labels that a fine-tuned run gives them.

    For self-training, and for a classifier that imitates several models (PET).
    """

    about = About(
        "data label",
        place=42,
        examples=(
            "plmctl data label checkpoint=runs/sst2 input=README.md threshold=0.5 out=labelled",
            (
                "plmctl data label checkpoint=runs/sst2 input=README.md share=0.5"
                " labelled=false temperature=2 out=labelled-half"
            ),
        ),
        options="json print_config config_dir plugin",
    )

    # a fine-tuned run, or several of one task, whose scores are averaged
    checkpoint: str | tuple[str, ...] = MISSING
    weights: tuple[Amount, ...] | None = None  # weights of several models; null: equal weights
    input: str = MISSING  # texts without labels: lines, or a .csv, .tsv or .jsonl table
    out: str = MISSING  # a new folder, for task.path
    threshold: Rate = 0.0  # texts stay out whose label is less probable
    share: Share = 1.0  # share of the texts of each label, the surest ones
    temperature: Amount = 1.0  # temperature of the written probabilities; PET: 2
    labelled: bool = True  # also write the examples that the checkpoint was trained on
    # a run of the same task, which says the labelled examples, the dev set and the columns of
    # `input`; null: checkpoint
    labelled_from: str | None = None
    batch_size: Batch = 32  # rows that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"

    def perform(self) -> Result:
        """Write train.jsonl of the labelled examples and the guesses that are kept, and dev.jsonl
        of the task of `labelled_from`.
        """
        from plmctl.datasets.label import (
            content_of,
            decide,
            make_guess,
            name_only_label,
            spell_labelled,
        )
        from plmctl.tasks.calibration import LabelDecision, join_decisions
        from plmctl.tasks.inference import has_empty_text

        out = new_folder(self.out)
        splits: dict[str, list[Example]] = {}
        reader = self._find_labelled()
        known = self._read_known(*reader)
        members = self._ask(splits, reader)
        task: Any = members[0].task
        decision = join_decisions([each.task for each in members], [each.kept for each in members])
        ((name, texts),) = splits.items()
        seen = {content_of(example) for examples in known.values() for example in examples}
        guesses = [
            make_guess(
                example,
                own,
                weights=self.weights,
                temperature=self.temperature,
                decide=partial(decide, task, decision or LabelDecision()),
            )
            for example, *own in zip(texts, *(each.answers[name] for each in members), strict=True)
            if content_of(example) not in seen and not has_empty_text(example)
        ]
        kept = self._keep(guesses)
        labelled = known["train"] if self.labelled else []
        decided = {"decision": decision.describe()} if decision else {}
        if empty := [example for example in texts if has_empty_text(example)]:
            decided["left out"] = f"{counted(len(empty), 'empty text')}, the first {empty[0].place}"
        labels = Counter(guess.label for guess in kept)
        if (alone := name_only_label(labels)) and len(task.names) > 1:
            remark(f"all {len(kept):,} texts have the label {alone}: they teach no other one", WARN)
        with write_folder(out, {**self._describe_job(), **decided}, dict(labels)) as made:
            lines = [*spell_labelled(labelled, task.names), *(guess.line() for guess in kept)]
            made.write("train.jsonl", "".join(lines))
            if dev := "".join(spell_labelled(known.get("dev", []), task.names)):
                made.write("dev.jsonl", dev)
        counts = {"labelled": len(labelled), "texts": len(texts), "kept": len(kept)}
        of_each = {name: labels[name] for name in task.names}
        found = {"out": self.out, **counts, "labels": of_each, **decided}
        of_labels = ", ".join(f"{name} {number:,}" for name, number in of_each.items())
        said = f"{len(kept):,} of {len(texts):,} texts ({of_labels})"
        lines = [f"{out}: {len(labelled):,} labelled examples, and {said}"]
        lines += [f"{name}: {value}" for name, value in decided.items()]
        return self.report(found, [*lines, self._spell_next(task)])

    def _find_labelled(self) -> tuple[str, Task]:
        """(the run that says the labelled examples, its task)."""
        from plmctl.artifacts.loading import open_source
        from plmctl.use.asked_task import describe_model

        setting = "checkpoint" if self.labelled_from is None else "labelled_from"
        run = self.labelled_from or self._checkpoints[0]
        source = open_source(run, plugins=self.plugins)
        if not (node := source.own_task()):
            fix = "labelled_from=null" if self.labelled_from else f"{setting}=<a run of finetune>"
            raise ConfigError(setting, run, "it was not fine-tuned on a task", fix=fix)
        given = describe_model(source, self.plugins)
        task: Task = build(node, given, self.plugins, path="task")
        if task.facts.answer != "class":
            raise ConfigError(setting, run, f"{_KINDS}; this one has {task.name}")
        return run, task

    def _read_known(self, run: str, task: Task) -> dict[str, list[Example]]:
        """The examples of train and dev, as far as their files still exist; ConfigError where those
        of train are needed and missing.
        """
        known: dict[str, list[Example]] = {}
        for split in ("train", "dev"):
            with contextlib.suppress(AbsentData):
                known |= {split: task.read(split)} if task.splits.has(split) else {}
        if self.labelled and "train" not in known:
            allowed = f"the examples that {run} was trained on are no longer in {task.splits.path}"
            fix = "labelled=false, or put their file back"
            raise ConfigError("labelled", True, allowed, fix=fix)
        return known

    @property
    def _checkpoints(self) -> list[str]:
        return [self.checkpoint] if isinstance(self.checkpoint, str) else [*self.checkpoint]

    def _ask(self, splits: dict[str, list[Example]], reader: tuple[str, Task]) -> list[Member]:
        """The answers of every model to the texts, which `splits` receives."""
        from plmctl.tasks.readers.tables import TEXTS
        from plmctl.tasks.unlabelled import read_unlabelled
        from plmctl.training.device.precision import choose
        from plmctl.training.processes.world import device_of
        from plmctl.use.asked_task import ask_all, open_task
        from plmctl.use.ensemble import ask_members

        checkpoints = self._checkpoints
        if self.weights is not None and len(self.weights) != len(checkpoints):
            allowed = f"{len(checkpoints)} numbers, one for each checkpoint"
            raise ConfigError(
                "weights", list(self.weights), allowed, fix="weights=null: all the same"
            )

        def open_member(loaded: Loaded, checkpoint: str) -> Task:
            task: Task = open_task(loaded, None, (), checkpoint=checkpoint)
            ask_all(task, loaded, (), split="dev", checkpoint=checkpoint)
            return task

        members = list(
            ask_members(
                checkpoints,
                open_member,
                lambda task: dict([read_unlabelled(task, self.input)]),
                splits,
                precision=choose("fp32", device_of(self.device, "device")),
                batch_size=self.batch_size,
                plugins=self.plugins,
                reader=reader,
            )
        )
        read = {role for examples in splits.values() for each in examples for role in each.fields}
        if read - {*TEXTS}:
            has = members[0].task.name
            raise ConfigError("checkpoint", self.checkpoint, f"{_KINDS}; this one has {has}")
        return members

    def _keep(self, guesses: Sequence[Guess]) -> list[Guess]:
        """The guesses to learn from; an error without any."""
        from plmctl.datasets.label import choose_guesses

        if not guesses:
            what = "all of its texts are among the labelled examples, in dev, or empty"
            raise DataError(what, file=self.input, fix="input=<new texts>")
        kept = choose_guesses(guesses, threshold=self.threshold, share=self.share)
        if not kept:
            surest = max(guess.sure for guess in guesses)
            what = f"none of {len(guesses):,} new texts has a label of {self.threshold:g} or more"
            raise UsageError(f"{what}\n  fix: threshold={math.floor(100 * surest) / 100:g}")
        return kept

    def _describe_job(self) -> dict[str, Any]:
        names = (
            *("checkpoint", "weights", "input", "threshold", "share", "temperature"),
            *("labelled", "labelled_from"),
        )
        return {"made by": "plmctl data label", **{name: self[name] for name in names}}

    def _spell_next(self, task: Classification) -> str:
        """The fine-tuning on what was written."""
        pair = task.columns.get("text2") is not None
        name = "pair_classification" if pair else "classification"
        soft = ["task.columns.probabilities=probabilities"] if self.temperature != 1 else []
        words = [f"task={name}", spell_setting("task.path", self.out), *soft, "checkpoint=<a run>"]
        return f"next: plmctl finetune {' '.join(words)}{option(self.plugins)}"
