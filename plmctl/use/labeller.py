"""A fine-tuned model, or several of one task, that label new texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from plmctl.artifacts.deployed import load_to_answer
from plmctl.artifacts.kept_decision import read_decision
from plmctl.artifacts.label_rows import facts_of
from plmctl.artifacts.loading import Loaded, Source
from plmctl.config.build import class_of, plain
from plmctl.config.saved import refuse_references
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import declared
from plmctl.core.rounding import DIGITS, round_floats
from plmctl.core.spelling import spell_line, spell_setting
from plmctl.runtime.base import Answer, Program, Runtime
from plmctl.runtime.eager import EagerRuntime
from plmctl.storage.resumable import hash_file
from plmctl.tasks import inference
from plmctl.tasks.calibration import LabelDecision, ask_sure, join_decisions
from plmctl.tasks.ensemble import join
from plmctl.tasks.inference import ReadPieces, Split
from plmctl.tasks.linear_model import LinearModel, is_linear, load_linear
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task, as_task
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.checkpoint import fingerprint_tensors
from plmctl.training.device.precision import Precision, choose
from plmctl.training.processes.world import device_of
from plmctl.use.answering import (
    AnsweredSplit,
    answer_examples,
    conclude_answers,
    describe_decision,
    describe_refitted,
    keep_said,
)
from plmctl.use.asked_task import choose_task, make_task, open_task
from plmctl.use.calibrating import decide
from plmctl.use.ensemble import explain, name_members, open_members
from plmctl.use.predict import ScoreTable, Told, predict
from plmctl.use.runtimes import open_runtime, refuse_runtime

Predictions = list[dict[str, Any]]


class Labeller(Protocol):
    """The answers of a task to examples, whoever gives them."""

    @property
    def source(self) -> Source:
        """The folder of the model, of several that of the first."""
        ...

    @property
    def task(self) -> Task: ...

    @property
    def runtime(self) -> Runtime: ...

    def answer(
        self, name: str, examples: list[Example], read: ReadPieces
    ) -> tuple[Predictions, str]:
        """(predictions, the decision of which they are); `read` counts what a model has read."""
        ...

    def score(
        self, name: str, examples: list[Example], seed: int
    ) -> tuple[Predictions, ScoreTable]:
        """(predictions, scores) of examples with answers."""
        ...

    def watched(self, show: Callable[[int], None]) -> Labeller:
        """The same, which shows how many rows of a piece it has read."""
        ...

    def describe(self) -> Mapping[str, str]:
        """The models, for people."""
        ...

    def identify(self) -> Mapping[str, Any]:
        """All that decides the answers, but the texts."""
        ...


class SingleLabeller(Labeller, Protocol):
    """The answers of one model."""

    @property
    def how(self) -> Mapping[str, Any]:
        """How it computes: its precision, its runtime."""
        ...

    def answer_split(self, name: str, examples: list[Example], **asked: Any) -> AnsweredSplit:
        """The answers with scores; `asked` are settings of `conclude_answers`."""
        ...


class WatchedRuntime(Runtime):
    """Another runtime, and a display of the rows that it has computed."""

    def __init__(self, inner: Runtime, show: Callable[[int], None]) -> None:
        super().__init__()
        self.inner, self.show, self.seen = inner, show, 0
        self.on_gpu = inner.on_gpu

    def prepare(self, program: Program, sample: Batch) -> Answer:
        return self.inner.prepare(program, sample)

    def answer(self, program: Program, batch: Batch) -> Mapping[str, Tensor]:
        found = self.inner.answer(program, batch)
        self.seen += len(batch.key)
        self.show(self.seen)
        return found

    def describe(self) -> str:
        return self.inner.describe()


@dataclass(frozen=True)
class ModelLabeller:
    """One model.

    Args:
        loaded: The model.
        task: Its task.
        asked: The settings of that.
        precision: The device, and the number type of the computation.
        batch_size: The number of texts at the same time.
        runtime: The library of the computation.
        decision: The decision that was fitted to it.
    """

    loaded: Loaded
    task: Task
    asked: Mapping[str, Any]
    precision: Precision
    batch_size: int
    runtime: Runtime
    decision: LabelDecision | None

    @property
    def source(self) -> Source:
        return self.loaded.source

    def answer(
        self, name: str, examples: list[Example], read: ReadPieces
    ) -> tuple[Predictions, str]:
        split = inference.encode_piece(self.task, name, examples, self.loaded.tokenizer)
        unread = read.add(examples, split.rows, self.loaded.tokenizer)
        return self.ask(split, unread)

    def ask(self, split: Split, unread: Mapping[int, float]) -> tuple[Predictions, str]:
        """(predictions, the decision) of rows; `unread` is of `inference.find_unread`."""
        how: dict[str, Any] = {**self.how, "digits": self.precision.digits}
        answers, _ = predict(self.loaded.model, self.task, split, **how)
        folder, digits = self.loaded.source.folder, self.precision.digits
        named = inference.name_unread(answers, unread)
        return decide(self.decision, folder, self.task, named, digits)

    def score(
        self, name: str, examples: list[Example], seed: int
    ) -> tuple[Predictions, ScoreTable]:
        answered = self.answer_split(name, examples, new_texts=True, decision=self.decision)
        facts = keep_said({"runtime": Told(self.runtime.describe())})
        return answered.predictions, answered.tabulate(self.task, facts, seed=seed)

    def answer_split(self, name: str, examples: list[Example], **asked: Any) -> AnsweredSplit:
        return answer_examples(self.loaded, self.task, name, examples, **self.how, **asked)

    @property
    def how(self) -> dict[str, Any]:
        given = {"precision": self.precision, "batch_size": self.batch_size}
        return {**given, "runtime": self.runtime}

    def watched(self, show: Callable[[int], None]) -> ModelLabeller:
        return replace(self, runtime=WatchedRuntime(self.runtime, show))

    def describe(self) -> Mapping[str, str]:
        return {"task": self.task.name, "checkpoint": str(self.loaded.source.folder)}

    def identify(self) -> Mapping[str, Any]:
        source, decision = self.loaded.source, self.decision
        graph = sorted(source.folder.glob("*.*")) if self.loaded.runtime else []
        return {
            "weights": fingerprint_tensors(source.tensors),
            "files": {file.name: hash_file(file) for file in graph},
            "tokenizer": source.tokenizer.fingerprint,
            "decision": None if decision is None else asdict(decision),
            "task": plain(self.asked),
            "batch_size": self.batch_size,
            "precision": self.precision.name,
            "device": self.precision.device.type,
            "runtime": self.runtime.describe(),
        }


@dataclass(frozen=True)
class LinearLabeller:
    """A linear model of words, which `finetune` has fitted.

    Args:
        source: Its folder, and the config of the run.
        task: The task of the run.
        model: The model.
        decision: The decision that was fitted to it.
    """

    source: Source
    task: Task
    model: LinearModel
    decision: LabelDecision | None

    @property
    def runtime(self) -> Runtime:
        return EagerRuntime()

    @property
    def how(self) -> dict[str, Any]:
        return {"precision": choose("fp32", torch.device("cpu")), "runtime": self.runtime}

    def answer(
        self, name: str, examples: list[Example], read: ReadPieces
    ) -> tuple[Predictions, str]:
        rows = self._ask(examples, read)
        return decide(self.decision, self.source.folder, self.task, rows, DIGITS)

    def score(
        self, name: str, examples: list[Example], seed: int
    ) -> tuple[Predictions, ScoreTable]:
        answered = self.answer_split(name, examples, new_texts=True, decision=self.decision)
        return answered.predictions, answered.tabulate(self.task, {}, seed=seed)

    def answer_split(self, name: str, examples: list[Example], **asked: Any) -> AnsweredSplit:
        rows = self._ask(examples, read := ReadPieces())
        return conclude_answers(self.source, self.task, name, examples, rows, read, **asked)

    def _ask(self, examples: list[Example], read: ReadPieces) -> Predictions:
        """The predictions without a decision, with `unknown` of 1 for a text without a known word;
        DataError for a label that training has not seen.
        """
        task = self.task
        inference.admit(task, examples)
        if task.answer and all(each.label is not None for each in examples):
            task.answer.number(examples, task.label_names)
        unread = dict.fromkeys(self.model.find_unread(examples), 1.0)
        read.add_texts(examples, len(unread))
        return inference.name_unread(self.model.answer(self.task, examples), unread)

    def watched(self, show: Callable[[int], None]) -> LinearLabeller:
        return self

    def describe(self) -> Mapping[str, str]:
        known = {"task": self.task.name, "checkpoint": str(self.source.folder)}
        calibrated = self.decision is not None and self.decision.temperature != 1
        if calibrated or not self.model.names:
            return known
        words = (self.source.folder, "calibrate=[temperature]", "split=dev")
        return {**known, "probabilities": f"not calibrated: {spell_line('eval', *words)}"}

    def identify(self) -> Mapping[str, Any]:
        files = {file.name: hash_file(file) for file in sorted(self.source.folder.glob("linear.*"))}
        return {"files": files, "decision": self.decision and asdict(self.decision)}


def open_linear(
    folder: Path, plugins: Sequence[str], asked: Any = None, given: Collection[str] = ()
) -> LinearLabeller:
    """The linear model of a folder, ready to label texts.

    Args:
        folder: The folder.
        plugins: Packages whose parts may be named.
        asked: The task; None: the task of the run.
        given: The settings that the command line names.

    Raises:
        ConfigError: The task has other labels, or none.
    """
    model, config = load_linear(folder)
    refuse_references(config, file=folder)
    source = Source(folder, config, {}, plugins=plugins)
    task = as_task(open_task(source, asked, given, checkpoint=folder))
    if task is None or not {*model.names} <= {*(task.label_names or model.names)}:
        labels = f", with the labels {', '.join(model.names)}" if model.names else ""
        allowed = f"null, or the task that the linear model was fitted to{labels}"
        raise ConfigError("task", _name_task(asked), allowed, fix="leave it out")
    return LinearLabeller(source, task, model, read_decision(folder))


@dataclass(frozen=True)
class EnsembleLabeller:
    """Several models of one task, whose answers are joined.

    Args:
        names: The names of the models.
        members: The models.
        votes: Whether each has one vote, instead of the mean of their probabilities.
        decision: The decision on what is joined; None: the task's own.
    """

    names: Sequence[str]
    members: Sequence[ModelLabeller]
    votes: bool
    decision: LabelDecision | None

    @property
    def task(self) -> Task:
        return self.members[0].task

    @property
    def source(self) -> Source:
        return self.members[0].source

    @property
    def tokenizer(self) -> Tokenizer:
        return self.members[0].loaded.tokenizer

    @property
    def runtime(self) -> Runtime:
        return self.members[0].runtime

    def answer(
        self, name: str, examples: list[Example], read: ReadPieces
    ) -> tuple[Predictions, str]:
        answers, split = self._ask(name, examples)
        return self._join(answers, read.add(examples, split.rows, self.tokenizer))

    def score(
        self, name: str, examples: list[Example], seed: int
    ) -> tuple[Predictions, ScoreTable]:
        answers, split = self._ask(name, examples)
        joined, said = self._join(answers, inference.find_unread(split, self.tokenizer))
        pairs = zip(self.names, answers, strict=True)
        scores = {own: self.task.score(rows) for own, rows in pairs}
        how = "votes" if self.votes else "mean"
        scores[f"{how} of {len(self.members)}"] = self.task.score(joined)
        facts: dict[str, Told] = {}
        if self.decision:
            own = self.decision.find_refitted(name, examples)
            facts = describe_decision(self.decision, said, joined)
            facts |= describe_refitted(own, self.task.metrics)
        title = f"{self.task.name}: {name}"
        return joined, ScoreTable(title, scores, facts, is_percent=self.task.is_percent)

    def _ask(self, name: str, examples: list[Example]) -> tuple[list[Predictions], Split]:
        """(the answers of each member, what the first has read)."""
        answers: list[Predictions] = []
        splits: list[Split] = []
        for own in self.members:
            inference.admit(own.task, examples)
            splits.append(inference.encode_piece(own.task, name, examples, own.loaded.tokenizer))
            answers.append(explain(own.loaded, own.task, splits[-1], **own.how))
        return answers, splits[0]

    def _join(
        self, answers: Sequence[Predictions], unread: Mapping[int, float]
    ) -> tuple[Predictions, str]:
        """(one answer for each example, the decision)."""
        count, digits = len(self.members), self.members[0].precision.digits
        named = [inference.name_unread(own, unread) for own in answers]
        joined = join(self.task, named, votes=self.votes, decision=self.decision)
        if self.decision:
            self.decision.check(self.task, joined[0])
        said = f"the mean of {count} models: {self.decision.describe()}" if self.decision else ""
        return round_floats(joined, digits or DIGITS), said

    def watched(self, show: Callable[[int], None]) -> EnsembleLabeller:
        count = len(self.members)
        runtime = WatchedRuntime(self.runtime, lambda seen: show(seen // count))
        return replace(self, members=[replace(own, runtime=runtime) for own in self.members])

    def describe(self) -> Mapping[str, str]:
        return {"task": self.task.name}

    def identify(self) -> Mapping[str, Any]:
        members = [own.identify() for own in self.members]
        decision = self.decision and asdict(self.decision)
        return {"members": members, "votes": self.votes, "decision": decision}


@dataclass(frozen=True)
class LabellerSettings:
    """The settings of a command that labels texts, without those of files.

    Args:
        asked: The task; None: the task of the fine-tuning.
        keys: The settings that the command line names.
        device: The device, as the user names it.
        precision: The number type of the computation, as the user names it.
        batch_size: The number of texts at the same time.
        runtime: The setting of the runtime.
        plugins: Packages whose parts may be named.
        unsure_below: The least probability of an answer; None: the fitted one.
    """

    asked: Any
    keys: Collection[str]
    device: str
    precision: str
    batch_size: int
    runtime: Any
    plugins: Sequence[str]
    unsure_below: float | None = None


def open_labeller(checkpoint: str, settings: LabellerSettings) -> SingleLabeller:
    """The model of a checkpoint with its task, or a linear one, ready to label texts.

    Raises:
        ConfigError: The checkpoint has no task that labels texts, or the task none of these
            settings.
    """
    device, plugins = settings.device, settings.plugins
    if is_linear(folder := Path(checkpoint).expanduser()):
        refuse_runtime(settings.runtime, plugins, "a linear model needs no other library")
        own = open_linear(folder, plugins, settings.asked, settings.keys)
        return replace(own, decision=ask_sure(own.decision, settings.unsure_below))
    loaded, precision = load_to_answer(checkpoint, device, settings.precision, plugins)
    return make_labeller(loaded, precision, settings, checkpoint)


def make_labeller(
    loaded: Loaded, precision: Precision, settings: LabellerSettings, checkpoint: str
) -> ModelLabeller:
    """An opened model with its task, ready to label texts.

    Raises:
        ConfigError: The model has no task that labels texts.
    """
    asked = choose_labels(loaded, settings, checkpoint)
    task = make_task(asked, loaded.source, settings.keys)
    runtime = open_runtime(settings.runtime, precision, settings.plugins, loaded)
    decision = ask_sure(read_decision(loaded.source.folder), settings.unsure_below)
    how = (precision, settings.batch_size, runtime, decision)
    return ModelLabeller(loaded, task, asked, *how)


# {head: the task that reads it} of published models with answers
PUBLISHED = {
    "class": "classification",
    "types": "multilabel",
    "score": "regression",
    "tag": "tagging",
    "span": "squad_v2",  # the answer of version 1, and the odds of no answer
}


def find_published(config: Mapping[str, Any]) -> str | None:
    """The head of a published model that a task of `PUBLISHED` reads; None where it has none."""
    heads = config.get("heads") or {}
    return next((head for head in PUBLISHED if heads.get(head)), None)


def choose_labels(loaded: Loaded, settings: LabellerSettings, checkpoint: str) -> dict[str, Any]:
    """The task of a model, as settings; ConfigError where it labels no texts."""
    named = {key.partition(".")[0] for key in settings.keys}
    if settings.asked is None and "task" not in named and not loaded.own_task():
        tune = ("task=classification", "task.path=<labelled texts>")
        fix = spell_line("finetune", *tune, spell_setting("checkpoint", checkpoint))
        what = "it has no task: a pretrained model labels nothing before it is fine-tuned"
        if head := find_published(loaded.config):
            labelled = (f"task={PUBLISHED[head]}", "input=<texts>")
            fix = spell_line("predict", spell_setting("checkpoint", checkpoint), *labelled)
            what = "its answers are published without a task"
        raise ConfigError("checkpoint", checkpoint, what, fix=fix)
    node = choose_task(loaded.source, settings.asked, settings.keys, checkpoint=checkpoint)
    kind: Any = class_of(node, settings.plugins)
    if declared(kind) == "probe" or facts_of(node, settings.plugins).ranks:
        name = _name_task(node)
        allowed = "a task that labels texts one by one; plmctl eval measures this one"
        fix = spell_line("eval", f"task={name}", spell_setting("checkpoint", checkpoint))
        raise ConfigError("task", name, allowed, fix=fix)
    return node


def _name_task(node: Mapping[str, Any]) -> str:
    """The name of a task in its settings, or of the file of its class."""
    return str(node.get("name") or node["_target_"].split(".")[-2])


def open_ensemble(
    checkpoints: Sequence[str], settings: LabellerSettings, *, votes: bool
) -> EnsembleLabeller:
    """The models of several checkpoints of one task, all of them in memory.

    Raises:
        UsageError: They are of several tasks, or have no answers that can be joined.
    """
    precision = choose(settings.precision, device_of(settings.device, "device"))
    runtime = open_runtime(settings.runtime, precision, settings.plugins)
    nodes: list[dict[str, Any]] = []

    def open_member(loaded: Loaded, checkpoint: str) -> Task:
        nodes.append(choose_labels(loaded, settings, checkpoint))
        task: Task = make_task(nodes[-1], loaded.source, settings.keys)
        return task

    given: Any = {"device": precision.device, "plugins": settings.plugins}
    sizes = (precision, settings.batch_size, runtime)
    members = [
        ModelLabeller(loaded, task, nodes[-1], *sizes, read_decision(loaded.source.folder))
        for loaded, task in open_members(checkpoints, open_member, **given)
    ]
    decision = join_decisions([own.task for own in members], [own.decision for own in members])
    decision = ask_sure(decision, settings.unsure_below)
    return EnsembleLabeller(name_members(checkpoints), members, votes, decision)
