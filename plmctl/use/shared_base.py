"""Several tasks that share one base model, answered in one pass of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.loading import (
    Loaded,
    Source,
    find_base,
    load,
    open_source,
    without_spare_rows,
)
from plmctl.config.build import build, class_of
from plmctl.core.errors import DataError, UsageError, nearest
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted
from plmctl.models.base import Model
from plmctl.nn.peft.routed import Routes, graft
from plmctl.tasks import inference
from plmctl.tasks.inference import Split
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.tasks.together import ask
from plmctl.training.checkpoint import load_exactly, read_base, tensors_of
from plmctl.use.asked_task import describe_model

# the parts of a config that the models of all tasks have in common; rates of dropout may differ
COMMON = ("size", "pattern", "position", "model")


@dataclass(frozen=True)
class LearnedTask:
    """The learned part of one task: its heads, and how its rows are made."""

    task: Task
    source: Source
    model: Model  # the common backbone, and its own heads


class SharedBase:
    """One base model with the trained parts of several tasks (LoRA, IA3, adapters, prefixes,
    biases, norms), in evaluation mode. Rows of all tasks run through it together.
    """

    def __init__(self, learned: Mapping[str, LearnedTask], routes: Routes) -> None:
        self.learned, self._routes = dict(learned), routes
        self.tasks = list(self.learned)

    def predict(self, lines: Sequence[str], tasks: Sequence[str]) -> list[dict[str, Any]]:
        """The predictions for lines of text, each as its task reads typed lines, in their order.

        Args:
            lines: Lines such as "a fine film", or two texts with a tab between them.
            tasks: The task of each line, by its name.

        Raises:
            UsageError: A name is none of the tasks, or is lacking.
            DataError: A line is none of its task.
        """
        lines, tasks = _check_lists(lines, tasks)
        places: dict[str, list[int]] = {}
        for place, (_, name) in enumerate(zip(lines, tasks, strict=True)):
            places.setdefault(self._check(name), []).append(place)
        examples = {
            name: [self._parse(name, lines[place], place + 1) for place in own]
            for name, own in places.items()
        }
        answers = self.answer(examples)
        found: dict[int, dict[str, Any]] = {}
        for name, own in places.items():
            found |= dict(zip(own, answers[name], strict=True))
        return [found[place] for place in range(len(lines))]

    def answer(
        self, examples: Mapping[str, Sequence[Example]], *, batch_size: int = 32
    ) -> dict[str, list[dict[str, Any]]]:
        """The predictions for the examples of each task."""
        splits = {name: self.encode(name, own) for name, own in examples.items() if own}
        logits, found = self.ask(splits, batch_size=batch_size), {}
        for name, split in splits.items():
            own = self.learned[name]
            answers = own.task.predict(logits[name], split.rows, split.examples)
            unread = inference.find_unread(split, own.source.tokenizer)
            found[name] = inference.name_unread(answers, unread)
        return found

    def encode(self, name: str, examples: Sequence[Example]) -> Split:
        """The rows of the examples of a task."""
        own = self.learned[self._check(name)]
        return inference.encode_split(own.task, name, list(examples), own.source.tokenizer)

    def ask(
        self, splits: Mapping[str, Split], *, batch_size: int = 32, overhead: int | None = None
    ) -> dict[str, dict[str, np.ndarray]]:
        """{task: logits by name, in the order of its rows}; `overhead` is that of `batches.cut`."""
        rows = {self.tasks.index(name): split.rows for name, split in splits.items()}
        members = [(own.task, own.model) for own in self.learned.values()]
        with torch.no_grad():
            how: Any = {"batch_size": batch_size, "overhead": overhead}
            found = ask(members, rows, self._routes, **how)
        return {self.tasks[number]: logits for number, logits in found.items()}

    def _check(self, name: str) -> str:
        if name not in self.learned:
            known = ", ".join(self.learned)
            raise UsageError(f"no task '{name}'{nearest(name, self.learned)}: there are {known}")
        return name

    def _parse(self, name: str, line: str, number: int) -> Example:
        if not isinstance(line, str):
            raise DataError(f"a line is a text, not {line!r}", file="lines", line=number)
        try:
            return self.learned[name].task.parse(line, number)
        except ValueError as error:
            raise DataError(str(error), file=f"lines for {name}", line=number) from error


def _check_lists(lines: Sequence[str], tasks: Sequence[str]) -> tuple[list[str], list[str]]:
    """Both as lists of one length; else UsageError."""
    fix = 'predict(["a fine film", "a dull one"], ["sst2", "sst2"])'
    for what, given in (("lines", lines), ("tasks", tasks)):
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise UsageError(f"{what} must be a list of texts, not {given!r}\n  fix: {fix}")
    lines, tasks = list(lines), list(tasks)
    if len(lines) != len(tasks):
        counts = f"{counted(len(lines), 'line')}, and {counted(len(tasks), 'name')} of tasks"
        raise UsageError(f"{counts}: each line has the name of its task\n  fix: {fix}")
    return lines, tasks


def load_adapters(
    paths: Mapping[str, str | os.PathLike[str]],
    *,
    plugins: Sequence[str] = (),
    device: torch.device | str = "cpu",
) -> SharedBase:
    """The base model of several checkpoints, once, with the trained part of each.

    Args:
        paths: {a name of the task: its run or checkpoint}.
        plugins: the packages outside plmctl that they may be made of.
        device: The device that the model computes on.

    Raises:
        UsageError: A checkpoint is not fine-tuned, has no base, or another one than the first.
    """
    if not paths:
        raise UsageError("load_adapters: name one checkpoint at least")
    routes, learned, tuned = Routes(), dict[str, LearnedTask](), list[nn.Module]()
    shared: SharedModel | None = None
    for name, path in paths.items():
        loaded = load(path, plugins=plugins)
        _check_task(loaded, path)
        shared = _open_base(loaded, path) if shared is None else shared.check(loaded, path)
        task = build(loaded.own_task(), describe_model(loaded, plugins), plugins, path="task")
        heads = dict(loaded.model.heads.items())
        model = Model(backbone=shared.model.backbone, heads=heads).to(device).eval()
        learned[name] = LearnedTask(task, loaded.source, model)
        tuned.append(loaded.model.backbone)
    assert shared is not None
    graft(shared.model.backbone, tuned, routes)
    shared.model.to(device).eval()
    return SharedBase(learned, routes)


@dataclass(frozen=True)
class SharedModel:
    """The base model of the checkpoints, and the first of them."""

    place: Path
    model: Model
    config: Mapping[str, Any]
    first: object

    def check(self, loaded: Loaded, path: object) -> SharedModel:
        """This one, if it is the base of a checkpoint, too; UsageError otherwise."""
        for name in COMMON:
            if _without_dropout(loaded.config[name]) != _without_dropout(self.config[name]):
                what = f"{path} and {self.first} have other settings of {name}"
                fix = f"plmctl eval {spell_setting('checkpoint', path)}"
                raise UsageError(f"{what}\n  fix: ask them apart: {fix}")
        place, kept = _base_of(loaded, path)
        own = tensors_of(self.model)
        if place.resolve() != self.place.resolve() and not all(
            torch.equal(loaded.source.tensors[key], own[key]) for key in kept if key in own
        ):
            what = f"{path} was trained on {place}, and {self.first} on {self.place}"
            raise UsageError(f"{what}\n  fix: name checkpoints of one base")
        return self


def _open_base(loaded: Loaded, path: object) -> SharedModel:
    """The base model of a checkpoint, without heads."""
    place, _ = _base_of(loaded, path)
    source, config = loaded.source, {**loaded.config, "peft": None}
    model = build_model(
        config, vocab_size=source.vocab_size, vocab=source.vocab, heads={}, plugins=source.plugins
    )
    before = without_spare_rows(open_source(place, plugins=source.plugins)).tensors
    own = {name: tensor for name, tensor in before.items() if name.startswith("backbone.")}
    load_exactly(model, own, file=place)
    return SharedModel(place, model, loaded.config, path)


def _base_of(loaded: Loaded, path: object) -> tuple[Path, list[str]]:
    """The folder of the base of a checkpoint, and the tensors that it has from there."""
    folder = loaded.source.folder
    base = read_base(folder)
    if base is None:
        what = f"{path}: it has all weights itself, so it shares none with other tasks"
        raise UsageError(f"{what}\n  fix: name runs of finetune with peft=")
    return find_base(folder, base), base["tensors"]


def _check_task(loaded: Loaded, path: object) -> None:
    node = loaded.own_task()
    kind = class_of(node, loaded.source.plugins) if node else None
    if not (isinstance(kind, type) and issubclass(kind, Task)):
        what = f"{path}: it was not fine-tuned on a task with labels"
        raise UsageError(f"{what}\n  fix: name runs of finetune with peft=")


def _without_dropout(node: Any) -> Any:
    """Settings without rates of dropout, which change nothing in evaluation."""
    if isinstance(node, Mapping):
        return {key: _without_dropout(own) for key, own in node.items() if "dropout" not in key}
    return node
