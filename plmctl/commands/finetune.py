"""`plmctl finetune`: a checkpoint, or a fresh model, trained on a labelled task; the best on the
dev split is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from omegaconf import DictConfig, OmegaConf

from plmctl.commands.common import After, Session, fit, training
from plmctl.commands.fitted import (
    check_length,
    complete,
    fit_language_heads,
    settle,
    with_new_tokens,
)
from plmctl.commands.remembering import check_cache
from plmctl.commands.teaching import checked_task, taught
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.rounding import rounded
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.objectives.penalty import penalized
from plmctl.run.assemble import build_model
from plmctl.run.build import build, plain
from plmctl.run.compose import Flags
from plmctl.run.headers import naming_source
from plmctl.run.loading import find, open_source, take
from plmctl.run.model_facts import reading, remark_on_pattern
from plmctl.run.predict import predict, show_scores
from plmctl.run.rewrite import by_teacher
from plmctl.storage.atomic import write_json
from plmctl.tasks import inference
from plmctl.tasks.base import Task
from plmctl.tasks.batches import Batches
from plmctl.tasks.inference import Split
from plmctl.tasks.predictions import write_predictions
from plmctl.text import unknown
from plmctl.text.tokenizer import META, Tokenizer
from plmctl.training.budget import Budget
from plmctl.training.checkpoint import Checkpoints, load_exactly, read
from plmctl.training.device.precision import choose
from plmctl.training.freezing import apply_freezing
from plmctl.training.stages import Stage
from plmctl.training.trainer import Result

TOKENIZER = "tokenizer"  # folder of the run and of each checkpoint


def run(cfg: DictConfig, flags: Flags, after: After = lambda session, result: result) -> int:
    """Fine-tune, or with --dry-run only say what that would be; returns the exit code."""
    if not flags.resume:
        cfg = complete(OmegaConf.create(plain(cfg)), flags)
        task = build_task(cfg, flags)
        fit_language_heads(cfg, task, flags.plugins)
        check_length(cfg, task, flags.plugins)
        with naming_source("task", cfg.task.get("name"), flags.config_dirs):
            # everything that can be wrong with files and labels, before anything is written
            inference.check_splits(task)
        cfg = checked_task(cfg, flags, _check_model(cfg, task, flags), task)
        check_cache(cfg, task, flags.plugins)
    if flags.dry_run:
        return _dry_run(cfg, flags)
    ready: list[Tokenizer] = []

    def prepare(cfg: DictConfig) -> None:
        by_teacher(cfg, flags)
        ready[:] = [_tokenizer(cfg, flags)]

    return training(
        cfg, flags, prepare=prepare, train=lambda session: after(session, train(session, ready[0]))
    )


def build_task(cfg: DictConfig, flags: Flags) -> Task:
    task = build(cfg.task, reading(cfg, flags.plugins), flags.plugins, path="task")
    if not isinstance(task, Task):
        raise UsageError(
            f"task={cfg.task.get('name') or cfg.task['_target_']} is for plmctl eval,"
            " it has nothing to train"
        )
    if not task.metrics:
        raise ConfigError(
            "task.metrics", [], "one at least, by which the best checkpoint is chosen"
        )
    return task


def _check_model(cfg: DictConfig, task: Task, flags: Flags) -> Model:
    """The model without its numbers: whether its parts fit, and whether `train.frozen` names
    some of them.
    """
    cfg = cfg.copy()
    settle(cfg, task, flags.plugins)
    if cfg.checkpoint:
        size = open_source(cfg.checkpoint, plugins=flags.plugins).vocab_size
    elif cfg.tokenizer.get("path"):
        size = Tokenizer.load(cfg.tokenizer.path).vocab.size
    else:
        size = cfg.tokenizer.get("vocab_size") or 0
    if size:
        task.check_vocabulary(int(size))
    with torch.device("meta"):
        model = build_model(
            cfg, vocab_size=(int(size) or 1) + task.transform.new_tokens, plugins=flags.plugins
        )
    apply_freezing(model, trainable=cfg.train.trainable, frozen=cfg.train.frozen)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        fix = "freeze less: train.frozen=[backbone]"
        raise ConfigError(
            "train.frozen", plain(cfg.train.frozen), "something must be left to train", fix=fix
        )
    return model


def _devs(task: Task) -> list[str]:
    return [name for name in task.reader.splits if name.startswith("dev") and task.has(name)]


def _tokenizer(cfg: DictConfig, flags: Flags) -> Tokenizer:
    """The run's, where an earlier sitting saved it; else the checkpoint's, or a new one, the
    same in every process.
    """
    if flags.resume and (Path(cfg.run.dir) / TOKENIZER / META).is_file():
        return Tokenizer.load(Path(cfg.run.dir) / TOKENIZER)
    if cfg.checkpoint is not None:
        return open_source(cfg.checkpoint, plugins=flags.plugins).tokenizer
    if cfg.tokenizer.get("path"):
        return Tokenizer.load(cfg.tokenizer.path)
    return _fresh_tokenizer(cfg, flags)


def _fresh_tokenizer(cfg: DictConfig, flags: Flags) -> Tokenizer:
    """One that is trained on `data.path`, or on the texts of the task where no other text is
    given.
    """
    if cfg.data.path:
        from plmctl.text.reader import documents

        texts = [
            s
            for d in documents(cfg.data.path, field=cfg.data.field, lines=cfg.data.lines)
            for s in d.sentences
        ]
    else:
        task = build_task(cfg, flags)
        texts = [str(text) for example in task.read("train") for text in task.texts(example)]
    return Tokenizer.learn(texts, build(cfg.tokenizer, plugins=flags.plugins, path="tokenizer"))


def splits(task: Task, tokenizer: Tokenizer, share: float = 1.0) -> dict[str, Split]:
    """train, a `share` of it, and every dev split that is there, encoded; `fit_labels` has seen
    all of train.
    """
    train = task.read("train")
    task.fit_labels(train)
    found = {
        "train": inference.portion(train, share),
        **{name: task.read(name) for name in _devs(task)},
    }
    return {
        name: inference.encoded(task, name, examples, tokenizer) for name, examples in found.items()
    }


def train(session: Session, tokenizer: Tokenizer) -> Result:
    """Read, encode, build, fit; then score the best checkpoint and write predictions/ and
    result.json.
    """
    cfg, world = session.cfg, session.world
    task = build_task(cfg, session.flags)
    if world.main and not (session.folder / TOKENIZER / META).is_file():
        tokenizer.save(session.folder / TOKENIZER)
    data = splits(task, tokenizer, cfg.train.get("share", 1.0))
    for split in data.values():
        told = [
            f"{len(split.examples)} examples",
            inference.truncation(split.rows) or "nothing is cut",
        ]
        told += [unknown.told(inference.unknown(split.rows, tokenizer.vocab))]
        told += (
            [inference.known(data["train"].examples, split.examples)]
            if split is not data["train"]
            else []
        )
        if split.name == "dev" and task.held_share:
            told.append(f"held out of train by what they say (task.dev_share={task.held_share:g})")
        session.say(f"{split.name}: {'; '.join(filter(None, told))}")
    if "dev" not in data:
        wanted = (
            f"it would be {' or '.join(task.reader.splits['dev'])}, or task.dev_share=0.1 of train"
        )
        session.say(f"no dev split ({wanted}): nothing is scored, the last is kept")
    for line in inference.noted(task.reader):
        session.say(line)
    if passed := inference.counted(task.reader.skipped):
        session.say(passed)
    for remark in task.remarks:
        session.say(remark)
    if session.precision.name != "fp32":
        session.say(
            f"validation in {session.precision.name}, as training;"
            " predictions/ and result.json in fp32"
        )
    settle(cfg, task, session.flags.plugins)
    model = _model(session, task, tokenizer)
    remarks = remark_on_pattern(cfg, model.backbone, session.flags.plugins, task.longest)
    for name, line in remarks.items():
        session.say(f"{name} {line}")
    batches = Batches(
        data["train"].rows,
        batch_size=cfg.train.batch_size,
        micro_batch_size=cfg.train.micro_batch_size,
        seed=cfg.seed,
        world=world.size,
        rank=world.rank,
        noise=task.noise(tokenizer.vocab),
    )
    every = batches.updates_per_epoch

    def evaluate(model: Model) -> dict[str, float]:
        return (
            predict(model, task, data["dev"], precision=session.precision)[1] if world.main else {}
        )

    objective = penalized(model, taught(session, model, task, rows=len(data["train"].rows.key)))
    result = fit(
        session,
        model=model,
        objective=objective,
        budget=_budget(cfg, every),
        stages=[
            Stage(batches=lambda: batches, trainable=cfg.train.trainable, frozen=cfg.train.frozen)
        ],
        evaluate=evaluate if "dev" in data else None,
        extras=lambda folder: tokenizer.save(folder / TOKENIZER),
        keep_best=task.metrics[0] if objective.facts.heads_learn else "",
        best_is_largest=task.best_is_largest,
        settings={name: every for name in ("eval_every", "save_every") if cfg.train[name] is None},
    )
    if world.main and not result.exit_code:
        best = _conclude(
            session, task, model, {name: split for name, split in data.items() if name != "train"}
        )
        return replace(result, checkpoint=best)
    return result


def _model(session: Session, task: Task, tokenizer: Tokenizer) -> Model:
    """First weights by `seed`, those of new heads by `head_seed`, then whatever the checkpoint
    has.
    """
    cfg, plugins = session.cfg, session.flags.plugins
    resuming = (
        Checkpoints(session.folder / "checkpoints", say=lambda message: None).newest()
        if session.flags.resume
        else None
    )
    layers = None if resuming else plain(cfg.get("kept_layers"))
    source = (
        open_source(resuming or cfg.checkpoint, layers, plugins=plugins)
        if resuming or cfg.checkpoint
        else None
    )
    size, new = source.vocab_size if source else tokenizer.vocab.size, task.transform.new_tokens
    size = max(size, tokenizer.vocab.size + new) if new else size
    model = build_model(cfg, vocab_size=size, vocab=tokenizer.vocab, seed=cfg.seed, plugins=plugins)
    head_seed = cfg.seed if cfg.head_seed is None else cfg.head_seed
    initialize = cast(Callable[..., None], model.backbone.initializer)
    initialize(model.heads, generator=torch.Generator().manual_seed(head_seed))
    if source and not resuming:
        found = with_new_tokens(model, source.tensors)
        take(model, found, source=cfg.checkpoint, unused=source.unused, say=session.say)
    return model


def _budget(cfg: DictConfig, updates_per_epoch: int) -> Budget:
    length = {name: cfg.train[name] for name in ("steps", "tokens", "epochs", "minutes")}
    return Budget.of(**length, updates_per_epoch=updates_per_epoch)


def _conclude(session: Session, task: Task, model: Model, devs: dict[str, Split]) -> Path:
    """Scores of the checkpoint that did best, from the very predictions that are saved; returns
    that checkpoint.

    In fp32, as `plmctl eval` scores; validation was in the precision of training.
    """
    best, precision = find(session.folder), choose("fp32", session.world.device)
    load_exactly(model, read(best).model, file=best)
    metrics = {}
    for name, split in devs.items():
        predictions, found = predict(
            model, task, split, precision=precision, digits=precision.digits
        )
        metrics[name] = rounded(found)
        write_predictions(session.folder / "predictions", name, predictions)
    record: dict[str, Any] = {
        "task": task.name,
        "checkpoint": str(best),
        "labels": task.label_names,
        "skipped": task.reader.skipped,
    }
    record |= {"signatures": task.signatures} if task.signatures else {}
    write_json(session.folder / "result.json", {**record, "metrics": metrics})
    extra = {"predictions": str(session.folder / "predictions")} if metrics else {}
    if not session.flags.front:  # else that command shows them in its own table
        show_scores(f"{task.name}: {best.name}", metrics, as_json=session.flags.json, extra=extra)
    return best


def _dry_run(cfg: DictConfig, flags: Flags) -> int:
    """Examples, labels, updates, parameters, compute, memory and time; nothing is written."""
    from plmctl.commands.dry_run import estimate_task, print_tables

    task = build_task(cfg, flags)
    examples = task.read("train")
    task.fit_labels(examples)
    examples = inference.portion(examples, cfg.train.share)
    model = _check_model(cfg, task, flags)
    updates = -(-len(examples) // cfg.train.batch_size)
    parts = {
        "backbone": model.backbone,
        **{f"heads.{name}": head for name, head in model.heads.items()},
    }
    counts = {f"parameters of {name}": count(part) for name, part in parts.items()}
    labels = {"labels": task.outputs} if task.outputs else {}
    numbers = {"examples": len(examples), **labels, "updates an epoch, at least": updates, **counts}
    told = remark_on_pattern(cfg, model.backbone, flags.plugins, task.longest)
    costs = estimate_task(cfg, model, task, flags, updates=updates)
    extra = told | (costs if flags.json else {})
    show_scores(f"finetune task={task.name}", {"train": numbers}, as_json=flags.json, extra=extra)
    if not flags.json:
        print_tables(costs)
    return 0
