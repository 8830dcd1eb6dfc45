"""`plmctl data label`."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plmctl.config.build import MISSING, build
from plmctl.config.command import About, Command, Result
from plmctl.config.first_session import first_words
from plmctl.config.plugins import option
from plmctl.config.schema import TaskUser
from plmctl.config.spec import key_of
from plmctl.core.errors import AbsentData, ConfigError, DataError, UsageError
from plmctl.core.spelling import spell_setting, spell_word
from plmctl.core.terminal import WARN, counted, remark
from plmctl.core.values import Amount, Batch, Count, Rate, Share
from plmctl.storage.resumable import new_folder, write_folder

if TYPE_CHECKING:
    from plmctl.artifacts.loading import Loaded
    from plmctl.datasets.label import Guess
    from plmctl.tasks.classification import Classification
    from plmctl.tasks.record import Example
    from plmctl.tasks.task import Task
    from plmctl.text.tabular import TableSpelling
    from plmctl.use.ensemble import Member

# settings of a fine-tuning that say what it reads, not how it learns
COLUMNS = "task.columns."
DATA = ("task", "task.path", "task.dev_share", "task.test_share", "task.folds", "task.fold")
_KINDS = "tasks with one label for a text or a pair (classification, cloze, GLUE's)"


@dataclass(frozen=True)
class _Found:
    """The examples of a job, and remarks on them.

    Args:
        labelled: The labelled examples to write.
        held: {split: its labelled examples} of dev and test.
        texts: The number of texts without labels.
        decided: {remark: value} for the record.
    """

    task: Classification
    out: Path
    labelled: Sequence[Example]
    held: Mapping[str, Sequence[Example]]
    texts: int
    decided: Mapping[str, str]

    def count(self) -> dict[str, Any]:
        """The numbers for the record."""
        counts = {"labelled": len(self.labelled), "texts": self.texts}
        return {"out": str(self.out), **counts, **self.decided}

    def describe(self) -> list[str]:
        """A line for each remark."""
        return [f"{name}: {value}" for name, value in self.decided.items()]


def _is_labelled(examples: Sequence[Example]) -> bool:
    """Whether all have labels, unlike a hidden test set."""
    return all(each.label is not None for each in examples)


@dataclass(frozen=True)
class Label(TaskUser, Command):
    """Write a training set of texts with the labels that a fine-tuned run gives them.

    For self-training, and for a classifier that imitates several models (PET). With uncertain=, the
    labels of the texts of which it is least sure are left for you (active learning).
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
        slots="task",
    )

    # a fine-tuned run, or several of one task, whose scores are averaged
    checkpoint: str | tuple[str, ...] = MISSING
    # columns of `input` that have other names than in the labelled examples: task.columns.text=body
    task: Any = None
    weights: tuple[Amount, ...] | None = None  # weights of several models; null: equal weights
    input: str = MISSING  # texts without labels: lines, or a .csv, .tsv or .jsonl table
    out: str = MISSING  # a new folder, for task.path
    threshold: Rate = 0.0  # texts stay out whose label is less probable
    share: Share = 1.0  # share of the texts of each label, the surest ones
    temperature: Amount = 1.0  # temperature of the written probabilities; PET: 2
    # texts of which the models are least sure: only these are written, with an empty cell for a
    # label of yours; null: guesses are written
    uncertain: Count | None = None
    # measure of how unsure: distance of the two likeliest, entropy, or 1 less the likeliest
    uncertain_by: Literal["margin", "entropy", "confidence"] = "margin"
    labelled: bool = True  # also write the examples that the checkpoint was trained on
    # a run of the same task, which says the labelled examples, the dev set and the columns of
    # `input`; null: checkpoint
    labelled_from: str | None = None
    batch_size: Batch = 32  # rows that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one

    def perform(self) -> Result:
        """Write train.jsonl of the labelled examples and the guesses that are kept, and dev.jsonl
        of the task of `labelled_from`; with `uncertain`, tables for people.
        """
        from plmctl.datasets.label import LeftOut, decide, make_guess
        from plmctl.tasks.calibration import LabelDecision, join_decisions

        out = new_folder(self.out)
        self._refuse_unlike()
        splits: dict[str, list[Example]] = {}
        reader = self._find_labelled()
        known = self._read_known(*reader)
        members = self._ask(splits, reader)
        task: Any = members[0].task
        decision = join_decisions([each.task for each in members], [each.kept for each in members])
        ((name, texts),) = splits.items()
        unread = set.intersection(*({*each.unread[name]} for each in members))
        strange = {texts[number].place for number in unread}
        bundled = reader[1].splits.names_bundles
        left = LeftOut.find(texts, known, bundled=bundled, unread=strange)
        guesses = [
            make_guess(
                example,
                own,
                weights=self.weights,
                temperature=self.temperature,
                decide=partial(decide, task, decision or LabelDecision()),
            )
            for example, *own in zip(texts, *(each.answers[name] for each in members), strict=True)
            if example.place not in left.places
        ]
        if not guesses:
            what = f"none of its texts is left: {'; '.join(left.describe().values())}"
            raise DataError(what, file=self.input, fix="input=<new texts>")
        labelled = known["train"] if self.labelled else []
        decided = {"decision": decision.describe()} if decision else {}
        decided |= left.describe()
        held = {name: own for name, own in known.items() if name != "train" and _is_labelled(own)}
        found = _Found(task, out, labelled, held, len(texts), decided)
        return (self._write_uncertain if self.uncertain else self._write_guesses)(found, guesses)

    def _write_guesses(self, found: _Found, guesses: Sequence[Guess]) -> Result:
        from plmctl.datasets.label import name_only_label, spell_labelled

        kept, task = self._keep(guesses), found.task
        bundled = task.splits.names_bundles
        labels = Counter(guess.label for guess in kept)
        if (alone := name_only_label(labels)) and len(task.names) > 1:
            remark(f"all {len(kept):,} texts have the label {alone}: they teach no other one", WARN)
        with write_folder(found.out, {**self._describe_job(), **found.decided}, dict(labels)) as to:
            spell = partial(spell_labelled, names=task.names, bundled=bundled)
            lines = [*spell(found.labelled), *(guess.line(bundled=bundled) for guess in kept)]
            to.write("train.jsonl", "".join(lines))
            for name, examples in found.held.items():
                to.write(f"{name}.jsonl", "".join(spell(examples)))
        of_each = {name: labels[name] for name in task.names}
        of_labels = ", ".join(f"{name} {number:,}" for name, number in of_each.items())
        said = f"{len(kept):,} of {found.texts:,} texts ({of_labels})"
        lines = [f"{found.out}: {len(found.labelled):,} labelled examples, and {said}"]
        columns = {"bundle": "bundle"} if bundled else {}
        lines += [*found.describe(), self._spell_next(task, columns)]
        return self.report({**found.count(), "kept": len(kept), "labels": of_each}, lines)

    def _write_uncertain(self, found: _Found, guesses: Sequence[Guess]) -> Result:
        from plmctl.datasets.label import (
            choose_uncertain,
            count_different,
            make_table,
            name_columns,
            read_own,
            spell_table,
        )

        columns, renamed = found.task.columns, self._own_columns
        names = name_columns(columns)
        asked = choose_uncertain(guesses, count=self.uncertain or 0, by=self.uncertain_by)
        new = [guess.example for guess in asked]
        own_rows = read_own([*new, *found.labelled], columns)
        for row in own_rows[: len(new)]:  # the texts are in the columns of the labelled examples
            for role, column in renamed.items():
                if column != names.get(role):
                    row.pop(column, None)
        rows = make_table(found.labelled, asked, names, own_rows)
        how = self._find_spelling(found.labelled)
        job = {**self._describe_job(), **found.decided}
        with write_folder(found.out, job, {"asked": len(asked)}) as made:
            made.write("train.csv", spell_table(rows, how))
            for name, own in found.held.items():
                held = make_table(own, [], names, read_own(own, columns))
                made.write(f"{name}.csv", spell_table(held, how))
        table, copies = found.out / "train.csv", len(guesses) - count_different(guesses)
        said = counted(len(guesses), "text")
        stated = {
            role: column for role, column in columns.items() if role != "probabilities"
        } | names
        kept = {role: column for role, column in stated.items() if column in rows[0]}
        lines = [
            f"{table}: {len(asked):,} of {said} without a label come first, and"
            f" {len(found.labelled):,} labelled examples behind them",
            *found.describe(),
            *([f"copies: {copies:,} of {said} stand there again, and come once"] if copies else []),
            f"next: fill in the empty cells of the column {names['label']} in {table}, one of"
            f" {', '.join(found.task.names)}; then {self._spell_next(found.task, kept)[6:]}",
        ]
        return self.report({**found.count(), "uncertain": len(asked)}, lines)

    def _find_spelling(self, labelled: Sequence[Example]) -> TableSpelling:
        """The form of the input, or else of the labelled examples, where they are tables."""
        from plmctl.tasks.predictions import TABLES
        from plmctl.text.tabular import TableSpelling, kind_of, spelling_of

        places = [self.input, *(each.place.rpartition(":")[0] for each in labelled[:1])]
        tables = [file for file in map(Path, places) if kind_of(file) in TABLES and file.is_file()]
        return spelling_of(tables[0]) if tables else TableSpelling()

    def _refuse_unlike(self) -> None:
        """ConfigError for settings of guesses where no guess is written."""
        if self.uncertain is None:
            return
        for name, usual in (("threshold", 0.0), ("share", 1.0), ("temperature", 1.0)):
            if self[name] != usual:
                allowed = f"{usual:g} with uncertain={self.uncertain}, which writes no guesses"
                raise ConfigError(name, self[name], allowed, fix=f"{name}={usual:g}")

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
        """The examples of train, dev and test, as far as their files still exist; ConfigError where
        those of train are needed and missing.
        """
        known: dict[str, list[Example]] = {}
        for split in ("train", "dev", "test"):
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
            task: Task = open_task(loaded.source, None, (), checkpoint=checkpoint)
            ask_all(task, loaded.source, (), split="dev", checkpoint=checkpoint)
            return task

        members = list(
            ask_members(
                checkpoints,
                open_member,
                lambda task: dict([self._read_input(task)]),
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

    @property
    def _own_columns(self) -> dict[str, Any]:
        """{role: the column of `input`} where settings name it; ConfigError for other ones."""
        found = dict[str, Any]()
        for key in sorted(key for key in self.provenance.keys if key.startswith("task.")):
            if not key.startswith(COLUMNS):
                allowed = "task.columns alone: the run says what its task is"
                raise ConfigError(key, "", allowed, fix="leave it out")
            role = key.removeprefix(COLUMNS)
            found[role] = self.task["columns"][role]
        return found

    def _read_input(self, task: Task) -> tuple[str, list[Example]]:
        """(name, texts) of the input, by the columns of a task or of the settings."""
        from plmctl.tasks.unlabelled import read_unlabelled

        renamed = copy(task)
        renamed.columns = {**task.columns, **self._own_columns}
        return read_unlabelled(renamed, self.input)

    def _keep(self, guesses: Sequence[Guess]) -> list[Guess]:
        """The guesses to learn from; UsageError without any."""
        from plmctl.datasets.label import choose_guesses

        kept = choose_guesses(guesses, threshold=self.threshold, share=self.share)
        if not kept:
            surest = max(guess.sure for guess in guesses)
            what = f"none of {len(guesses):,} new texts has a label of {self.threshold:g} or more"
            raise UsageError(f"{what}\n  fix: threshold={math.floor(100 * surest) / 100:g}")
        return kept

    def _describe_job(self) -> dict[str, Any]:
        names = (
            *("checkpoint", "weights", "input", "threshold", "share", "temperature"),
            *(
                "labelled",
                "labelled_from",
                *(("uncertain", "uncertain_by") if self.uncertain else ()),
            ),
        )
        return {"made by": "plmctl data label", **{name: self[name] for name in names}}

    def _list_settings(self) -> list[str]:
        """The words of the run that say how it learned, and its checkpoint; none of its data."""
        run = Path(self.labelled_from or self._checkpoints[0])
        words = [word for word in first_words(run) if key_of(word) not in DATA]
        own = [word for word in words if not key_of(word).startswith(("task.columns", "run."))]
        known = any(key_of(word) in ("checkpoint", "init") for word in own)
        return [*map(spell_word, own), *([] if known else ["checkpoint=<a run>"])]

    def _spell_next(self, task: Classification, columns: Mapping[str, Any]) -> str:
        """The fine-tuning on what was written; `columns`: {role: the column there}."""
        pair = task.columns.get("text2") is not None
        name = "pair_classification" if pair else "classification"
        soft = ["task.columns.probabilities=probabilities"] if self.temperature != 1 else []
        usual = {role: role for role in ("text", "label", *(["text2"] if pair else []))}
        own = (each for each in columns.items() if each not in usual.items())
        words = [f"task={name}", spell_setting("task.path", self.out)]
        words += [*(spell_setting(f"task.columns.{role}", column) for role, column in own), *soft]
        words += self._list_settings()
        return f"next: plmctl finetune {' '.join(words)}{option(self.plugins)}"
