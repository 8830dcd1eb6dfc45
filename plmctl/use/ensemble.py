"""`plmctl eval checkpoint=[a,b,c]`: several models of one task, joined to one answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from plmctl.artifacts.kept_decision import read_decision
from plmctl.artifacts.label_rows import with_order
from plmctl.artifacts.loading import Loaded, load, load_source
from plmctl.core.errors import UsageError
from plmctl.core.rounding import round_floats
from plmctl.core.spelling import spell_setting
from plmctl.knowledge.vectors import find_vectors
from plmctl.runtime.base import Runtime
from plmctl.tasks import inference
from plmctl.tasks.calibration import LabelDecision, join_decisions
from plmctl.tasks.capabilities import predict_fully
from plmctl.tasks.ensemble import join
from plmctl.tasks.linear_model import is_linear
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.training.device.precision import Precision
from plmctl.use.calibrating import decide_again

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Member:
    """The answers of one model to the examples of every split."""

    name: str
    task: Task
    answers: dict[str, Rows]
    digits: int | None  # digits of its numbers
    kept: LabelDecision | None  # the decision it uses
    unread: Mapping[str, Mapping[int, float]]  # {split: `inference.find_unread` of its examples}


def ask_members(
    checkpoints: Sequence[str],
    open_task: Callable[[Loaded, str], Task],
    read: Callable[[Task], Mapping[str, list[Example]]],
    splits: dict[str, list[Example]],
    *,
    precision: Precision,
    batch_size: int,
    plugins: Sequence[str] = (),
    reader: tuple[str, Task] | None = None,
    runtime: Runtime | None = None,
) -> Iterator[Member]:
    """Each member in turn, so that one model at a time is in memory.

    Args:
        open_task: Makes the task of a model, which a checkpoint names.
        read: Reads the examples of every split by a task.
        splits: The examples; `read` adds them for the first member where they are missing.
        precision: The device, and the number type of the computation.
        plugins: Packages outside plmctl that models may be made of.
        reader: A run and its task that read the examples; None: those of the first member.
        runtime: The library of the computation; None: PyTorch.
    """
    names = name_members(checkpoints)
    opened = open_members(
        checkpoints, open_task, device=precision.device, plugins=plugins, reader=reader
    )
    for name, (loaded, task) in zip(names, opened, strict=True):
        if not splits:
            splits |= read(reader[1] if reader else task)
        answers, unread = {}, {}
        for split, examples in splits.items():
            inference.admit(task, examples)
            encoded = inference.encode_split(task, split, examples, loaded.tokenizer)
            how: Any = {"precision": precision, "batch_size": batch_size, "runtime": runtime}
            answers[split] = explain(loaded, task, encoded, **how)
            unread[split] = inference.find_unread(encoded, loaded.tokenizer)
        kept = read_decision(loaded.source.folder)
        yield Member(name, task, answers, precision.digits, kept, unread)


def open_members(
    checkpoints: Sequence[str],
    open_task: Callable[[Loaded, str], Task],
    *,
    device: torch.device,
    plugins: Sequence[str] = (),
    reader: tuple[str, Task] | None = None,
) -> Iterator[tuple[Loaded, Task]]:
    """The model and the task of each member, whose labels are in one order.

    Args:
        open_task: Makes the task of a model, which a checkpoint names.
        plugins: Packages outside plmctl that models may be made of.
        reader: A run and its task, whose labels are right; None: those of the first member.
    """
    for checkpoint in checkpoints:
        linear = is_linear(Path(checkpoint).expanduser())
        if linear or find_vectors(checkpoint):
            kind = "is a linear model of words" if linear else "has vectors of a graph"
            what = f"{checkpoint} {kind}: an ensemble is of fine-tuned models"
            raise UsageError(f"{what}\n  fix: {spell_setting('checkpoint', checkpoint)}")
        loaded = load(checkpoint, plugins=plugins)
        loaded.model.to(device)
        task = open_task(loaded, checkpoint)
        begin, first = reader = reader or (checkpoint, task)
        refuse_misfit(begin, checkpoint, first, task)
        if task.label_names != first.label_names:  # the same ones in another order
            loaded = load_source(with_order(loaded.source, task.facts.head, first.names))
            loaded.model.to(device)
            task = open_task(loaded, checkpoint)
        yield loaded, task


def explain(
    loaded: Loaded,
    task: Task,
    split: inference.Split,
    *,
    precision: Precision,
    batch_size: int,
    runtime: Runtime | None = None,
) -> Rows:
    """The answers of a member, with all that an ensemble joins, as its own decision has them."""
    how: Any = {"batch_size": batch_size, "device": precision.device, "runtime": runtime}
    with torch.no_grad(), precision.autocast():
        logits, _ = inference.run(loaded.model, task, split.rows, **how)
    rows = predict_fully(task, logits, split.rows, split.examples)
    return decide_again(loaded, task, rows)[0]


def join_members(
    members: Sequence[Member], *, votes: bool
) -> tuple[dict[str, Rows], LabelDecision | None]:
    """({split: the joined answers of all members}, the decision that follows from theirs).

    Args:
        members: The answers of each model, to the same examples.
        votes: Whether each model has one vote, instead of the mean of the probabilities.
    """
    decision = join_decisions([each.task for each in members], [each.kept for each in members])
    joined = {}
    for name in members[0].answers:
        unread = members[0].unread[name]
        answers = [inference.name_unread(member.answers[name], unread) for member in members]
        rows = join(members[0].task, answers, votes=votes, decision=decision)
        joined[name] = round_floats(rows, members[0].digits or 6)
    return joined, decision


def refuse_misfit(begin: str, checkpoint: str, first: Task, task: Task) -> None:
    """UsageError where what a member answers is not what the first one, `begin`, does."""
    kinds = [
        [type(part).__name__ for part in (each, each.layout, each.answer)] for each in (task, first)
    ]
    if task.name != first.name:
        what = f"{checkpoint} was fine-tuned on {task.name}, {begin} on {first.name}"
    elif kinds[0] != kinds[1]:
        what = f"{checkpoint} answers by {', '.join(kinds[0])}, {begin} by {', '.join(kinds[1])}"
    elif sorted(task.label_names or ()) != sorted(first.label_names or ()):
        known = ", ".join(task.label_names or ()), ", ".join(first.label_names or ())
        what = f"the labels of {checkpoint} ({known[0]}) are not those of {begin} ({known[1]})"
    else:
        return
    raise UsageError(f"checkpoint: {what}\n  fix: name models of one task with the same labels")


def join_names(checkpoints: Sequence[str]) -> Path:
    """The folder of the answers of several checkpoints."""
    names = name_members(checkpoints)
    return Path("eval") / "+".join(name.replace(os.sep, "-") for name in names)


def name_members(checkpoints: Sequence[str]) -> list[str]:
    """The last part of each path; all of it where another has an equal one."""
    short = [os.path.basename(os.path.normpath(path)) for path in checkpoints]
    return [
        path if short.count(name) > 1 else name
        for path, name in zip(checkpoints, short, strict=True)
    ]
