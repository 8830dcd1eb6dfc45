"""`plmctl eval checkpoint=[a,b,c]`: several models of one task, joined to one answer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from plmctl.artifacts.kept_decision import read_decision
from plmctl.artifacts.label_rows import with_order
from plmctl.artifacts.loading import load_for, load_source
from plmctl.config.build import build
from plmctl.config.uses import Evaluate
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.rounding import round_floats
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import tell
from plmctl.knowledge.vectors import find_vectors
from plmctl.tasks import inference
from plmctl.tasks.calibration import LabelDecision, join_decisions
from plmctl.tasks.ensemble import join
from plmctl.tasks.predictions import STDOUT
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task, as_task
from plmctl.use.asked_task import (
    ask_all,
    check_out,
    choose_task,
    describe_model,
    is_printed,
    name_file,
    read_examples,
    write_for_board,
    write_split,
)
from plmctl.use.calibrating import decide_again
from plmctl.use.predict import ScoreTable, Told

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Member:
    """What one model says of the examples of every split that is asked for."""

    name: str
    task: Task
    answers: dict[str, Rows]
    digits: int | None  # that its numbers have
    kept: LabelDecision | None  # what it decides by


def evaluate_together(spec: Evaluate) -> int:
    """Score the members and their ensemble, and write its predictions or submission."""
    if spec.out is not None:
        check_out(Path(spec.out), spec.overwrite, submission=spec.provenance.submission)
    if spec.calibrate:
        allowed = "of one checkpoint, in which it is kept"
        fix = spell_setting("checkpoint", spec.checkpoint[0])
        raise ConfigError("calibrate", list(spec.calibrate), allowed, fix=fix)
    names = name_members(spec.checkpoint)
    joint = Path("eval") / "+".join(name.replace(os.sep, "-") for name in names)
    out = (
        STDOUT
        if is_printed(spec.out, spec.input, submission=spec.provenance.submission)
        else Path(spec.out or joint)
    )
    splits: dict[str, list[Example]] = {}
    members = list(ask_members(spec, splits))
    task, votes = members[0].task, spec.joined == "votes"
    decision = join_decisions([each.task for each in members], [each.kept for each in members])
    joined = {}
    for name in splits:
        answers = [member.answers[name] for member in members]
        rows = join(task, answers, votes=votes, decision=decision)
        joined[name] = round_floats(rows, members[0].digits or 6)
    if spec.provenance.submission:
        for name, predictions in joined.items():
            content, board = task.submit(predictions), task.submission[name]
            tell(write_for_board(out, board, content, overwrite=spec.overwrite))
        return 0
    ((name, examples),) = splits.items()
    file = write_split(spec, out, name, examples, joined[name])
    scores = {}
    if inference.is_answered(examples):
        scores = {each.name: each.task.score(each.answers[name]) for each in members}
        scores[f"{spec.joined} of {len(members)}"] = task.score(joined[name])
    extra: dict[str, Any] = {"task": task.name, "rows": len(examples)}
    extra["predictions"] = name_file(file)
    if decision is not None:
        extra["decision"] = Told(f"the mean of {len(members)} models: {decision.describe()}")
    ScoreTable(f"{task.name}: {name}", scores, extra).show(
        as_json=spec.provenance.json,
        aside=is_printed(spec.out, spec.input, submission=spec.provenance.submission),
    )
    return 0


def ask_members(
    spec: Evaluate, splits: dict[str, list[Example]], *, reader: tuple[str, Task] | None = None
) -> Iterator[Member]:
    """Each member in turn, so that one model at a time is in memory; the first, or the task of the
    run `reader`, says which `splits` there are.
    """
    names = name_members(spec.checkpoint)
    for name, checkpoint in zip(names, spec.checkpoint, strict=True):
        if find_vectors(checkpoint):
            what = f"{checkpoint} has vectors of a graph: an ensemble is of fine-tuned models"
            raise UsageError(f"{what}\n  fix: {spell_setting('checkpoint', checkpoint)}")
        own = replace(spec, checkpoint=checkpoint)
        loaded, precision = load_for(str(own.checkpoint), own.device, own.precision, own.plugins)
        given = describe_model(loaded, spec.plugins)
        keys = own.provenance.keys
        node = choose_task(loaded, own.task, keys, checkpoint=own.checkpoint)
        task = as_task(build(node, given, spec.plugins, path="task"))
        if task is None:
            allowed = "a task with labels: an ensemble is of fine-tuned models"
            fix = spell_setting("checkpoint", checkpoint)
            raise ConfigError("task", spec.task.get("name"), allowed, fix=fix)
        ask_all(own, task, loaded)
        begin, first = reader = reader or (checkpoint, task)
        refuse_misfit(begin, checkpoint, first, task)
        if task.label_names != first.label_names:  # the same ones in another order
            loaded = load_source(with_order(loaded.source, task.head, first.names))
            loaded.model.to(precision.device)
            task = build(
                choose_task(loaded, own.task, own.provenance.keys, checkpoint=own.checkpoint),
                given,
                spec.plugins,
                path="task",
            )
        if not splits:
            splits |= _read(spec, first)
        answers = {}
        for split, examples in splits.items():
            encoded = inference.encode_split(task, split, examples, loaded.tokenizer)
            with torch.no_grad(), precision.autocast():
                logits, _ = inference.run(
                    loaded.model,
                    task,
                    encoded.rows,
                    batch_size=spec.batch_size,
                    device=precision.device,
                )
            rows = task.explain(logits, encoded.rows, examples)
            answers[split], _ = decide_again(loaded, task, rows)
        kept = read_decision(loaded.source.folder)
        yield Member(name, task, answers, precision.digits, kept)


def _read(spec: Evaluate, task: Task) -> dict[str, list[Example]]:
    if not spec.provenance.submission:
        return dict([read_examples(spec, task)])
    if found := {split: task.read(split) for split in task.submission if task.has(split)}:
        return found
    raise UsageError(f"--submission: {task.name} has no leader board, or no file of it")


def refuse_misfit(begin: str, checkpoint: str, first: Task, task: Task) -> None:
    """UsageError where what a member answers is not what the first one, `begin`, does."""
    if type(task) is not type(first) or task.name != first.name:
        what = f"{checkpoint} was fine-tuned on {task.name}, {begin} on {first.name}"
    elif sorted(task.label_names or ()) != sorted(first.label_names or ()):
        known = ", ".join(task.label_names or ()), ", ".join(first.label_names or ())
        what = f"the labels of {checkpoint} ({known[0]}) are not those of {begin} ({known[1]})"
    else:
        return
    raise UsageError(f"checkpoint: {what}\n  fix: name models of one task with the same labels")


def name_members(checkpoints: Sequence[str]) -> list[str]:
    """The last part of each path, or all of it where these are not different."""
    short = [os.path.basename(os.path.normpath(path)) for path in checkpoints]
    return short if len({*short}) == len(short) else list(checkpoints)
