"""A fine-tuning, planned: the task, its rows and everything that is trained, built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from plmctl.artifacts.adapter_base import describe_base
from plmctl.artifacts.added_rows import with_new_tokens, with_second_text
from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.from_corpus import describe_empty_lexicons, start_tables
from plmctl.artifacts.label_rows import follow_labels, labels_of
from plmctl.artifacts.loading import Source, open_source, without_spare_rows
from plmctl.artifacts.model_facts import pattern_of
from plmctl.artifacts.taking import initialize, take
from plmctl.config.build import build
from plmctl.config.model_settings import model_settings
from plmctl.config.spec import thaw
from plmctl.config.walks import select
from plmctl.core.batch import Rows
from plmctl.core.errors import list_some
from plmctl.core.terminal import WARN, counted
from plmctl.inputs.known_text import describe_links
from plmctl.models.base import Model
from plmctl.models.remarks import remark_on_model
from plmctl.objectives.base import Objective
from plmctl.objectives.costs import charge
from plmctl.runs.fit import budget_of
from plmctl.runs.parents import build_task
from plmctl.runs.phases import divide
from plmctl.runs.regularising import build_regulariser
from plmctl.runs.session import Session
from plmctl.runs.shortness import describe_shortness
from plmctl.runs.side_tasks import choose_metric
from plmctl.runs.side_training import (
    SideData,
    encode_splits,
    make_batches,
    mix_batches,
    mix_losses,
    read_sides,
)
from plmctl.runs.stabilising import read_epoch, stabilise
from plmctl.runs.teachers import add_teacher
from plmctl.runs.text_teachers import Lessons
from plmctl.runs.trained_adapters import take_adapters
from plmctl.runs.unfreezing import make_stages
from plmctl.tasks import inference
from plmctl.tasks.capabilities import find_lesson, noise_of
from plmctl.tasks.inference import Split
from plmctl.tasks.readers.holding import find_units
from plmctl.tasks.readers.label_text import SETTING, describe_names
from plmctl.tasks.record import Example
from plmctl.tasks.scores.bundles import spell_known
from plmctl.tasks.splits import count_units, describe_bundles
from plmctl.tasks.task import Task
from plmctl.tasks.trained_texts import count_text_forms
from plmctl.text.tokenizer import META, Tokenizer
from plmctl.training.budget import Budget
from plmctl.training.checkpoint import Base, Checkpoints, load_tensors, read_base
from plmctl.training.device.precision import choose
from plmctl.training.freezing import apply_freezing
from plmctl.training.frozen_outputs import FrozenOutputs, FrozenPart
from plmctl.training.regularisers.base import Regulariser
from plmctl.training.stages import Stage
from plmctl.use.predict import BATCH

TOKENIZER = "tokenizer"  # folder of the run and of each checkpoint


@dataclass(frozen=True)
class FinetuningPlan:
    """A fine-tuning before its first update.

    Args:
        data: The encoded examples of each split; "train" is trained on.
        objective: The objective with teachers, other tasks and stabilisers.
        kept: Outputs of frozen layers that are computed once.
        sides: The data of the other tasks.
        metric: The metric that chooses the checkpoint, and whether more is better.
        base: The model of the checkpoint, where few weights are trained in addition to its own.
    """

    task: Task
    tokenizer: Tokenizer
    data: Mapping[str, Split]
    model: Model
    objective: Objective
    kept: FrozenOutputs | None
    sides: Sequence[SideData]
    stages: Sequence[Stage]
    budget: Budget
    epoch: int
    metric: tuple[str, bool]
    base: Base | None
    regulariser: Regulariser | None

    @property
    def scored(self) -> dict[str, Split]:
        """The splits that are scored, without "train"."""
        return {name: split for name, split in self.data.items() if name != "train"}


def plan(session: Session) -> FinetuningPlan:
    """Read, encode and build what a spec names, and log the first lines of the run."""
    spec, task, tokenizer = session.spec, build_task(session.spec), session.prepared
    data = _read(session, task, tokenizer)
    model, begin = _model(session, task, tokenizer)
    rows = data["train"].rows
    remarks = remark_on_model(
        model.backbone,
        pattern_of(model_settings(spec), spec.plugins),
        task.lengths.longest,
        trained=spec.checkpoint is not None,
    )
    for name, line in remarks.items():
        session.say(f"{name} {line}")
    for line in describe_links(model, partial(_has_marks, rows)):
        session.say(line)
    trainable = model.trainable(spec.train.trainable)
    of_dev = {"dev": data["dev"].rows} if "dev" in data else {}
    kept = _keep_outputs(session, model, {"train": rows} | of_dev)
    sides = read_sides(session, tokenizer)
    for asked in (task, *(each.side.task for each in sides)):
        for line in asked.directions.describe():
            session.say(line)
    before = {"before_epoch": kept.before_epoch} if kept else {}
    batches = mix_batches(session, make_batches(session, task, tokenizer, rows, **before), sides)
    objective = _build_objective(session, model, task, sides, data["train"], tokenizer)
    epoch = batches.updates_per_epoch
    budget = budget_of(spec.train, updates_per_epoch=epoch)
    short = describe_shortness(spec, budget.steps, model.backbone.width, epoch)
    for line in (*short, *describe_empty_lexicons(model)):
        session.say(line)
    frozen, lengths = spec.train.frozen, task.lengths.sides
    whole = Stage(batches=lambda: batches, trainable=trainable, frozen=frozen, lengths=lengths)
    stages = [whole]
    if spec.train.unfreeze:
        stages, line = make_stages(spec, model, whole, epoch=epoch, steps=budget.steps)
        session.say(line)
    schedule = partial(build, spec.schedule, plugins=spec.plugins, path="schedule")
    stages, lines = divide(stages, objective, budget.steps, schedule)
    for line in lines:
        session.say(line)
    return FinetuningPlan(
        task,
        tokenizer,
        data,
        model,
        objective,
        kept,
        sides,
        stages,
        budget,
        epoch=epoch,
        metric=choose_metric(spec, task),
        base=_find_base(session, model, trainable, begin),
        regulariser=build_regulariser(spec, model, task),
    )


def _read(session: Session, task: Task, tokenizer: Tokenizer) -> dict[str, Split]:
    """The encoded splits of a task; the run keeps the tokenizer."""
    if session.world.main and not (session.folder / TOKENIZER / META).is_file():
        tokenizer.save(session.folder / TOKENIZER)
    data = encode_splits(session, task, tokenizer)
    _describe_data(session, task, tokenizer, data)
    return data


def _build_objective(
    session: Session,
    model: Model,
    task: Task,
    sides: Sequence[SideData],
    split: Split,
    tokenizer: Tokenizer,
) -> Objective:
    """The objective of a task with its teachers, other tasks and stabilisers."""
    spec, device, rows = session.spec, session.world.device, split.rows
    lessons = None
    if lesson := find_lesson(task):
        lessons = Lessons([lesson(each) for each in split.examples], choose("fp32", device))
    how: Any = {"say": session.say, "rows": len(rows.key), "lessons": lessons}
    how["keep"] = session.keep_origin
    objective = add_teacher(spec, model, task, **how)
    trainable = model.trainable(spec.train.trainable)
    apply_freezing(model, trainable=trainable, frozen=spec.train.frozen)
    return stabilise(
        spec,
        model.to(device),
        task,
        charge(model, mix_losses(objective, sides)),
        resumed=_newest(session) is not None,
        passes=partial(read_epoch, spec, device, rows, noise_of(task, tokenizer.vocab)),
    )


def _keep_outputs(session: Session, model: Model, splits: dict[str, Rows]) -> FrozenOutputs | None:
    """The object that computes outputs of frozen layers once, where `train.frozen_outputs`
    is set.
    """
    train = session.spec.train
    if train.frozen_outputs == "batch":
        return None
    apply_freezing(model, trainable=model.trainable(train.trainable), frozen=train.frozen)
    model.kept = FrozenOutputs(
        model=model,
        part=FrozenPart.of(model, train.frozen_outputs),
        often=train.frozen_outputs,
        splits=splits,
        folder=session.folder / "frozen",
        limit=train.frozen_limit * 1e9,
        precision=session.precision,
        world=session.world,
        batch_size=BATCH,
        say=session.say,
    )
    return model.kept


def _describe_unknown(tokenizer: Tokenizer, split: Split, train: Split) -> str:
    """Unknown tokens, full-width letters that are others than the usual ones, and the other form of
    Chinese than in train.
    """
    read = inference.ReadPieces()
    read.add(split.examples, split.rows, tokenizer)
    other = read.describe_form(count_text_forms(train.examples)) if split is not train else ""
    return "; ".join(filter(None, (read.describe_unknown(), other)))


def _describe_data(
    session: Session, task: Task, tokenizer: Tokenizer, data: Mapping[str, Split]
) -> None:
    """Say what is read: examples of each split, what is cut, unknown, known already, or passed
    over.
    """
    train = data["train"]
    for line in _describe_splits(task, tokenizer, data):
        session.say(line)
    for name, known in inference.count_known_bundles(task, data).items():
        session.say(spell_known(name, known, count_units(data[name].examples)), WARN)
    if "dev" not in data:
        files = " or ".join(task.splits.reader.splits["dev"])
        session.say(
            f"no dev split (it would be {files}, or task.dev_share=0.1 of train): nothing is"
            " scored, the last is kept"
        )
    skipped = inference.describe_skipped(task.splits.reader)
    of_splits = [
        f"{name}: {line}"
        for describe in (inference.describe_empty, task.describe_scoring)
        for name, split in data.items()
        if (line := describe(split.examples))
    ]
    # numbers and texts have no names: each may stand once
    named = task.facts.has_classes and task.label_names is not None
    single = inference.describe_single(train.examples) if named else ""
    for line in [
        *inference.describe_reading(task.splits.reader),
        *filter(None, [skipped, single]),
        *(describe_names(inference.count_labels(train.examples)) if named else []),
        *of_splits,
        *task.remarks,
        *task.describe_known(train.examples),
    ]:
        session.say(line)
    if session.precision.name != "fp32":
        session.say(
            f"validation in {session.precision.name}, as training;"
            " predictions/ and result.json in fp32"
        )


def _describe_splits(task: Task, tokenizer: Tokenizer, data: Mapping[str, Split]) -> Iterator[str]:
    """A line on each split: its examples, what is cut, unknown, and how it was held out."""
    train = data["train"]
    test = task.read("test") if task.splits.tested_share else []
    sizes = {name: len(data[name].examples) for name in ("train", "dev") if name in data}
    sizes["test"] = len(test)
    for name, split in data.items():
        notes = [
            counted(len(split.examples), "example"),
            inference.describe_truncation(split.rows) or "nothing is cut",
            _describe_unknown(tokenizer, split, train),
            "" if split is train else inference.describe_overlap(train.examples, split.examples),
        ]
        if name == "dev" and task.splits.held_share:
            folds = task.settings.folds
            how = f"task.fold={task.settings.fold} of {folds}" if folds else ""
            how += _describe_undivided(task, train.examples) if folds else ""
            share = task.splits.describe_share(name, sizes, how=how)
            notes.append(_describe_held(train.examples, split.examples, name, share))
        yield f"{name}: {'; '.join(filter(None, notes))}"
    if test:
        share = task.splits.describe_share("test", sizes)
        held = _describe_held(train.examples, test, "test", share)
        yield f"test: {counted(len(test), 'example')}; {held}: plmctl eval split=test scores it"


def _describe_held(train: Sequence[Example], held: Sequence[Example], name: str, share: str) -> str:
    """How the examples of a split were taken out of train."""
    bundles = describe_bundles(train, held, name)
    by = f"in whole bundles: {bundles}" if bundles else "by what they say"
    return f"{share} held out of train {by}"


def _describe_undivided(task: Task, train: Sequence[Example]) -> str:
    """Words on labels that no fold has in dev, since one text or bundle has all their rows."""
    unit, labels = task.splits.unit, task.splits.labels
    found = find_units(train, unit=unit, labels=labels)
    alone = {label: keys[0] for label, keys in found.items() if len(keys) == 1}
    rows = counted(sum(unit(each) in alone.values() for each in train), "row")
    said = (
        f"; {rows} in train of every fold, for labels of one text or bundle: {list_some([*alone])}"
    )
    return said if alone else ""


def _has_marks(rows: Rows, name: str) -> bool:
    """Whether any token has a number in the track of this name."""
    return any(np.any(seq.tracks[name][:]) for seq in rows.seqs.values() if name in seq.tracks)


def _model(session: Session, task: Task, tokenizer: Tokenizer) -> tuple[Model, Source | None]:
    """First weights by `seed`, those of new heads by `head_seed`, then whatever the checkpoint has,
    which is returned, too.
    """
    spec, plugins, begin, layers = session.spec, session.spec.plugins, _newest(session), None
    resumed = begin is not None
    if not resumed:
        begin, layers = spec.checkpoint, thaw(spec.kept_layers)
    source = without_spare_rows(open_source(begin, layers, plugins=plugins)) if begin else None
    size, new = source.vocab_size if source else tokenizer.vocab.size, task.requires.new_tokens
    size = max(size, tokenizer.vocab.size + new) if new else size
    model = build_model(
        model_settings(spec),
        vocab_size=size,
        vocab=tokenizer.vocab,
        seed=spec.seed,
        plugins=plugins,
    )
    head_seed = spec.seed if spec.head_seed is None else spec.head_seed
    draw = cast(Callable[..., None], model.backbone.initializer)
    draw(model.heads, generator=torch.Generator().manual_seed(head_seed))
    if spec.first_vectors and not begin:
        first = build(spec.first_vectors, plugins=plugins, path="first_vectors")
        start_tables([model], first, tokenizer, np.zeros(0, np.int64))
    for method in model.methods:
        method.prepare(model.backbone, tokenizer)
    if source and not resumed:
        session.keep_origin("checkpoint", source.folder)
    if source and not resumed and spec.checkpoint_into:
        into = spec.checkpoint_into
        initialize(model, str(begin), into=into, layers=layers, plugins=plugins, say=session.say)
    elif source and not resumed:
        stated = select(spec.provenance.written, SETTING) is not None
        begun = follow_labels(source, labels_of(spec, plugins), stated=stated, say=session.say)
        # the tensors that a checkpoint of the run may take from the source again
        same = {name: t for name, t in begun.tensors.items() if source.tensors[name] is t}
        tensors = with_second_text(model, source, with_new_tokens(model, begun.tensors))
        source = replace(source, tensors=same)
        take(model, tensors, source=source.folder, unused=source.unused, say=session.say)
        take_adapters(spec, model)
    elif source and read_base(source.folder):  # the trainer takes up what was trained, no more
        load_tensors(model, source.tensors)
    return model, None if resumed else source


def _newest(session: Session) -> Path | None:
    """The checkpoint that a resumed run goes on from; None: it begins at update 0."""
    if not session.spec.provenance.resume:
        return None
    checkpoints = Checkpoints(session.folder / "checkpoints", say=lambda message: None)
    return checkpoints.newest(session.world.all)


def _find_base(
    session: Session, model: Model, trainable: Sequence[str], begin: Source | None
) -> Base | None:
    """The model of the checkpoint, where few weights are trained in addition to its own;
    else None.
    """
    spec = session.spec
    if not (spec.peft and spec.checkpoint) or spec.kept_layers:
        return None
    apply_freezing(model, trainable=trainable, frozen=spec.train.frozen)
    source = begin or without_spare_rows(open_source(spec.checkpoint, plugins=spec.plugins))
    return describe_base(model, source, session.folder)
