"""`plmctl finetune`: a checkpoint, or a fresh model, trained on a labelled task; the best on the
dev split is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
from plmctl.artifacts.loading import Source, find, open_source, without_spare_rows
from plmctl.artifacts.model_facts import remark_on_model
from plmctl.artifacts.taking import initialize, take
from plmctl.config.asked import is_asked
from plmctl.config.build import build
from plmctl.config.schema import Finetune
from plmctl.config.spec import thaw
from plmctl.config.walks import select
from plmctl.core.batch import Rows
from plmctl.core.locate import locate
from plmctl.core.rounding import round_floats
from plmctl.core.terminal import counted, remark
from plmctl.datasets.rewrite import replace_targets
from plmctl.inputs.known_text import describe_links
from plmctl.models.base import Model
from plmctl.objectives.costs import charge
from plmctl.runs import estimate
from plmctl.runs.fit import budget_of, fit
from plmctl.runs.footprint import measure_footprint
from plmctl.runs.own_rate import settle_rate
from plmctl.runs.parents import build_task
from plmctl.runs.regularising import build_regulariser
from plmctl.runs.resolve import resolve_finetuning
from plmctl.runs.session import After, Session, run_session
from plmctl.runs.shortness import describe_shortness
from plmctl.runs.side_tasks import choose_metric, open_side_tasks
from plmctl.runs.side_training import (
    SideData,
    conclude_sides,
    encode_splits,
    make_batches,
    mix_batches,
    mix_losses,
    read_sides,
    score_sides,
)
from plmctl.runs.stabilising import read_epoch, stabilise
from plmctl.runs.task_fit import fit_task
from plmctl.runs.teachers import add_teacher
from plmctl.runs.trained_adapters import take_adapters
from plmctl.runs.unfreezing import make_stages
from plmctl.storage.atomic import write_json
from plmctl.tasks import inference
from plmctl.tasks.baselines import score_baselines
from plmctl.tasks.inference import Split
from plmctl.tasks.intervals import find_intervals
from plmctl.tasks.predictions import write_predictions
from plmctl.tasks.readers.label_text import SETTING, describe_names
from plmctl.tasks.scores.below import FILE as BASELINES
from plmctl.tasks.scores.below import list_below
from plmctl.tasks.task import Task
from plmctl.text import unknown
from plmctl.text.reader import read_documents
from plmctl.text.tokenizer import META, Tokenizer
from plmctl.training.checkpoint import (
    Base,
    Checkpoints,
    load_exactly,
    load_tensors,
    read,
    read_base,
)
from plmctl.training.device.precision import choose
from plmctl.training.freezing import apply_freezing
from plmctl.training.frozen_outputs import FrozenOutputs, FrozenPart
from plmctl.training.progress import Progress
from plmctl.training.stages import Stage
from plmctl.training.trainer import Result
from plmctl.use.predict import BATCH, ScoreTable, Told, predict

TOKENIZER = "tokenizer"  # folder of the run and of each checkpoint


def finetune(spec: Finetune, after: After = lambda session, result: result) -> int:
    """Fine-tune, or with --dry-run only say what that would be; returns the exit code.

    Args:
        after: What another command does once the training is over.
    """
    if spec.provenance.resume:
        spec = fit_task(spec, build_task(spec))  # older versions saved that with checkpoints alone
    else:
        spec = _resolve(spec)
        if spec.provenance.dry_run:
            return 0

    def prepare(spec: Finetune) -> tuple[Finetune, Tokenizer]:
        spec = replace_targets(spec)
        return spec, _tokenizer(spec)

    return run_session(
        spec,
        prepare=prepare,
        train=lambda session: after(session, train(session)),
        then=lambda session: commands_after(session.spec),
    )


def _resolve(spec: Finetune) -> Finetune:
    """The spec as it will be run; with --dry-run it says what that would be. Nothing that was read
    for it stays in memory beside what the training reads.
    """
    spec, task, outline = resolve_finetuning(spec)
    spec, line = settle_rate(spec, outline.model.backbone.width)
    if spec.provenance.dry_run:
        estimate.show_task(spec, outline, task)
    elif line:
        remark(line)
    return spec


def commands_after(spec: Finetune) -> dict[str, str]:
    """What one does with a fine-tuned model; {a command: a remark on it}."""
    pairs = (spec.task.get("columns") or {}).get("text2") is not None
    kind: Any = locate(spec.task["_target_"], spec.plugins)
    typed = "pairs that you type, one a line, a tab between its two texts" if pairs else kind.typed
    task = build_task(spec)
    there = [*task.dev_splits, *filter(task.has, ("test",)), "train"]
    split = "" if "dev" in there else f" split={there[0]}"
    return {
        f"plmctl eval checkpoint={{run}}{split}": "",
        **({"plmctl eval checkpoint={run} input=-": f"of the {typed}, to Ctrl-D"} if typed else {}),
        "plmctl report {run}": "",
    }


def _tokenizer(spec: Finetune) -> Tokenizer:
    """The run's, where an earlier sitting saved it; else the checkpoint's, or a new one, the
    same in every process.
    """
    saved = Path(str(spec.run.dir)) / TOKENIZER
    if spec.provenance.resume and (saved / META).is_file():
        return Tokenizer.load(saved)
    if spec.checkpoint is not None:
        return open_source(spec.checkpoint, plugins=spec.plugins).tokenizer
    if spec.tokenizer.get("path"):
        return Tokenizer.load(spec.tokenizer.path)
    if spec.data.path:
        documents = read_documents(spec.data.path, field=spec.data.field, lines=spec.data.lines)
        texts = [sentence for document in documents for sentence in document.sentences]
    else:
        tasks = [build_task(spec), *(side.task for side in open_side_tasks(spec))]
        texts = [str(t) for task in tasks for e in task.read("train") for t in task.texts(e)]
    recipe = build(spec.tokenizer, plugins=spec.plugins, path="tokenizer")
    tell = None if is_asked(spec.provenance, "tokenizer.vocab_size") else remark
    return Tokenizer.learn_most(lambda: texts, recipe, tell)


def train(session: Session) -> Result:
    """Read, encode, build, fit; then score the best checkpoint and write predictions/ and
    result.json.
    """
    spec, world = session.spec, session.world
    task, tokenizer = build_task(spec), session.prepared
    if world.main and not (session.folder / TOKENIZER / META).is_file():
        tokenizer.save(session.folder / TOKENIZER)
    data = encode_splits(task, tokenizer, spec.train.share)
    _describe_data(session, task, tokenizer, data)
    model, begin = _model(session, task, tokenizer)
    remarks = remark_on_model(spec, model.backbone, spec.plugins, task.longest)
    for name, line in remarks.items():
        session.say(f"{name} {line}")
    training, dev = data.pop("train"), data.get("dev")
    rows = training.rows
    for line in describe_links(model, partial(_has_marks, rows)):
        session.say(line)
    trainable = model.trainable(spec.train.trainable)
    kept = _keep_outputs(session, model, {"train": rows} | ({"dev": dev.rows} if dev else {}))
    sides = read_sides(session, tokenizer)
    before = {"before_epoch": kept.before_epoch} if kept else {}
    batches = mix_batches(session, make_batches(session, task, tokenizer, rows, **before), sides)

    def evaluate(model: Model, progress: Progress) -> dict[str, float]:
        if not world.main:
            return {}
        with kept.of("dev") if kept else contextlib.nullcontext():
            scores = predict(model, task, dev, precision=session.precision)[1] if dev else {}
        return scores | score_sides(model, sides, session.precision)

    objective = add_teacher(spec, model, task, say=session.say, rows=len(rows.key))
    apply_freezing(model, trainable=trainable, frozen=spec.train.frozen)
    objective = stabilise(
        spec,
        model.to(world.device),
        task,
        charge(model, mix_losses(objective, sides)),
        resumed=_newest(session) is not None,
        passes=partial(read_epoch, spec, world.device, rows, task.noise(tokenizer.vocab)),
    )
    epoch = batches.updates_per_epoch
    budget = budget_of(spec, updates_per_epoch=epoch)
    short = describe_shortness(spec, budget.steps, model.backbone.width, epoch)
    for line in (*short, *describe_empty_lexicons(model)):
        session.say(line)
    stages = [
        Stage(
            batches=lambda: batches,
            trainable=trainable,
            frozen=spec.train.frozen,
            row_tokens=task.max_length,
        )
    ]
    if spec.train.unfreeze:
        stages, line = make_stages(spec, model, stages[0], epoch=epoch, steps=budget.steps)
        session.say(line)
    best, largest = choose_metric(spec, task)
    result = fit(
        session,
        model=model,
        objective=objective,
        budget=budget,
        stages=stages,
        evaluate=evaluate if dev else None,
        extras=lambda folder: tokenizer.save(folder / TOKENIZER),
        keep_best=best if objective.facts.heads_learn else "",
        best_is_largest=largest,
        every=space_scorings(epoch, budget.steps, stable=bool(spec.train.least_steps)),
        base=_find_base(session, model, trainable, begin),
        regulariser=build_regulariser(spec, model, task),
    )
    if kept and not result.exit_code:
        kept.remove()
    if world.main and not result.exit_code:
        return replace(result, checkpoint=_conclude(session, task, model, training, data, sides))
    return result


def space_scorings(epoch: int, steps: int | None, *, stable: bool) -> int | None:
    """The updates between two scorings of dev where nobody says it: an epoch; ten times a run where
    `train.least_steps` is set, since an epoch may be a few updates of it, or half of it.
    """
    if not stable:
        return epoch
    return None if steps is None else max(1, steps // 10)


def _keep_outputs(session: Session, model: Model, splits: dict[str, Rows]) -> FrozenOutputs | None:
    """What computes outputs of frozen layers once, where `train.frozen_outputs` asks for it."""
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


def _describe_data(
    session: Session, task: Task, tokenizer: Tokenizer, data: Mapping[str, Split]
) -> None:
    """Say what is read: examples of each split, what is cut, unknown, known already, or passed
    over.
    """
    train = data["train"]
    for name, split in data.items():
        notes = [
            counted(len(split.examples), "example"),
            inference.describe_truncation(split.rows) or "nothing is cut",
            unknown.describe_unknown(inference.unknown(split.rows, tokenizer.vocab)),
            "" if split is train else inference.describe_overlap(train.examples, split.examples),
        ]
        if name == "dev" and task.held_share:
            share, folds = f"task.dev_share={task.held_share:g}", task.settings.folds
            how = f"task.fold={task.settings.fold} of {folds}" if folds else share
            notes.append(f"held out of train by what they say ({how})")
        session.say(f"{name}: {'; '.join(filter(None, notes))}")
    if "dev" not in data:
        files = " or ".join(task.reader.splits["dev"])
        session.say(
            f"no dev split (it would be {files}, or task.dev_share=0.1 of train): nothing is"
            " scored, the last is kept"
        )
    skipped = inference.describe_skipped(task.reader)
    of_splits = [
        f"{name}: {line}"
        for describe in (inference.describe_empty, task.describe_scoring)
        for name, split in data.items()
        if (line := describe(split.examples))
    ]
    single = inference.describe_single(train.examples) if task.has_classes else ""
    for line in [
        *inference.describe_reading(task.reader),
        *filter(None, [skipped, single]),
        *(describe_names(inference.count_labels(train.examples)) if task.has_classes else []),
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
    size, new = source.vocab_size if source else tokenizer.vocab.size, task.new_tokens
    size = max(size, tokenizer.vocab.size + new) if new else size
    model = build_model(
        spec, vocab_size=size, vocab=tokenizer.vocab, seed=spec.seed, plugins=plugins
    )
    head_seed = spec.seed if spec.head_seed is None else spec.head_seed
    draw = cast(Callable[..., None], model.backbone.initializer)
    draw(model.heads, generator=torch.Generator().manual_seed(head_seed))
    if spec.first_vectors and not begin:
        first = build(spec.first_vectors, plugins=plugins, path="first_vectors")
        start_tables([model], first, tokenizer, np.zeros(0, np.int64))
    for method in model.methods:
        method.prepare(model.backbone, tokenizer)
    if source and not resumed and spec.checkpoint_into:
        into = spec.checkpoint_into
        initialize(model, str(begin), into=into, layers=layers, plugins=plugins, say=session.say)
    elif source and not resumed:
        stated = select(spec.provenance.written, SETTING) is not None
        begun = follow_labels(source, labels_of(spec, plugins), stated=stated, say=session.say)
        # what a checkpoint of the run may take from there again
        same = {name: t for name, t in begun.tensors.items() if source.tensors[name] is t}
        tensors = with_second_text(model, source, with_new_tokens(model, begun.tensors))
        source = replace(source, tensors=same)
        take(model, tensors, source=begin, unused=source.unused, say=session.say)
        take_adapters(spec, model)
    elif source and read_base(source.folder):  # the trainer takes up what was trained, no more
        load_tensors(model, source.tensors)
    return model, None if resumed else source


def _newest(session: Session) -> Path | None:
    """The checkpoint that a resumed run goes on from; None: it begins at update 0."""
    if not session.spec.provenance.resume:
        return None
    return Checkpoints(session.folder / "checkpoints", say=lambda message: None).newest()


def _find_base(
    session: Session, model: Model, trainable: Sequence[str], begin: Source | None
) -> Base | None:
    """The model of the checkpoint, where few weights are trained beside its own; else None."""
    spec = session.spec
    if not (spec.peft and spec.checkpoint) or spec.kept_layers:
        return None
    apply_freezing(model, trainable=trainable, frozen=spec.train.frozen)
    source = begin or without_spare_rows(open_source(spec.checkpoint, plugins=spec.plugins))
    return describe_base(model, source, session.folder)


def _conclude(
    session: Session,
    task: Task,
    model: Model,
    training: Split,
    devs: Mapping[str, Split],
    sides: Sequence[SideData],
) -> Path:
    """Scores of the checkpoint that did best, from the very predictions that are saved, beside
    those of models without pretraining; returns that checkpoint.

    In fp32, as `plmctl eval` scores; validation was in the precision of training.
    """
    best, precision = find(session.folder), choose("fp32", session.world.device)
    saved = read(best)
    load_exactly(model, saved.model, file=best, elsewhere=saved.elsewhere)
    folder, metrics, intervals = session.folder / "predictions", {}, {}
    for name, split in devs.items():
        predictions, scores = predict(
            model, task, split, precision=precision, digits=precision.digits
        )
        metrics[name] = round_floats(scores)
        intervals[name] = find_intervals(task, predictions) if scores else {}
        write_predictions(folder, name, predictions)
    record: dict[str, Any] = {
        "task": task.name,
        "checkpoint": str(best),
        "labels": task.label_names,
        "skipped": task.reader.skipped,
    }
    record |= {"signatures": task.signatures} if task.signatures else {}
    baselines = score_baselines(
        task, training.examples, {name: split.examples for name, split in devs.items()}
    )
    footprint = measure_footprint(model, best, session.world.device)
    examples = {name: len(split.examples) for name, split in devs.items()}
    record |= {"metrics": metrics, "intervals": round_floats(intervals), "examples": examples}
    record |= {"footprint": footprint.record()}
    beside, places = conclude_sides(session, model, sides)
    record |= {"beside": beside} if beside else {}
    write_json(session.folder / "result.json", record)
    if baselines.scores:
        write_json(session.folder / BASELINES, round_floats(baselines.scores))
    given = session.spec.provenance
    if not given.front:  # else that command shows them in its own table
        extra: dict[str, Any] = {"predictions": str(folder)} if metrics else {}
        if line := baselines.describe(task.metrics[0]):
            extra = {"baselines": Told(line), **extra}
        if below := list_below(metrics, baselines.scores, task.metrics[0]):
            extra |= {"below the baselines": Told("; ".join(below), len(below))}
        title, as_json = f"{task.name}: {best.name}", given.json
        taken = footprint.record() if as_json else footprint.describe()
        extra = {"footprint": taken, **extra}
        extra |= {"beside": beside} if beside and as_json else places
        ScoreTable(title, metrics, extra, intervals, examples).show(as_json=as_json)
    return best
