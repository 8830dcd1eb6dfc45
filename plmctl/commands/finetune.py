"""`plmctl finetune`: a checkpoint, or a fresh model, trained on a labelled task; the best on the dev split is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from omegaconf import DictConfig, OmegaConf

from plmctl.assembly import build_model, longest, settled
from plmctl.commands import scoring
from plmctl.commands.common import Session, fit, training
from plmctl.config.build import build, locate, parameters, plain
from plmctl.config.compose import Flags
from plmctl.errors import ConfigError, UsageError
from plmctl.loading import find, open_source, refuse_another_model, take
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.tasks import inference
from plmctl.tasks.base import Task
from plmctl.tasks.batches import Batches
from plmctl.tasks.inference import Split
from plmctl.text.tokenizer import META, Tokenizer
from plmctl.training.budget import Budget
from plmctl.training.checkpoint import Checkpoints, load_exactly, read
from plmctl.training.freezing import apply_freezing
from plmctl.training.stages import Stage
from plmctl.training.trainer import Result

OF_THE_MODEL = ("size", "pattern", "position", "model", "tokenizer")  # a checkpoint brings these
TOKENIZER = "tokenizer"  # folder of the run and of each checkpoint


def run(cfg: DictConfig, flags: Flags) -> int:
    """Fine-tune, or with --dry-run only say what that would be; returns the exit code."""
    if not flags.resume:
        cfg = complete(OmegaConf.create(plain(cfg)), flags)
        task = build_task(cfg, flags)
        _check_files(task)
        _check_model(cfg, task, flags)
    if flags.dry_run:
        return _dry_run(cfg, flags)
    ready: list[Tokenizer] = []

    def prepare(cfg: DictConfig) -> None:
        ready[:] = [_tokenizer(cfg, flags)]

    return training(cfg, flags, prepare=prepare, train=lambda session: train(session, ready[0]))


def complete(cfg: DictConfig, flags: Flags) -> DictConfig:
    """The config with the checkpoint's own model in it, and the heads that fit its kind of backbone."""
    if cfg.checkpoint is not None:
        refuse_another_model(flags.overrides, OF_THE_MODEL, key="checkpoint")
        source = open_source(cfg.checkpoint)
        for name in OF_THE_MODEL:
            cfg[name] = source.config.get(name)
        bound = longest(source.config)
        if bound is not None and cfg.task.max_length > bound:
            raise ConfigError("task.max_length", cfg.task.max_length, f"at most {bound}, the longest row of {cfg.checkpoint}",
                              fix=f"task.max_length={bound}")  # fmt: skip
        if "classifier" not in cfg.model:
            cfg.model.classifier = _classifier(cfg, source.config.get("heads") or {})
    if "pooler" in cfg.heads:
        _fit_heads(cfg, flags)
    return cfg


def _classifier(cfg: DictConfig, heads: Mapping[str, Any]) -> dict[str, bool]:
    """What a checkpoint means that does not say it: BERT's pooler if it has one, GPT's bare head, otherwise RoBERTa's."""
    causal = scoring.pooling(cfg) == "last"
    return {"pooler": "pooler" in heads, "dense": "pooler" not in heads and not causal, "bias": not causal}


def _fit_heads(cfg: DictConfig, flags: Flags) -> None:
    """Heads that decide about rows as `model.classifier` says: with the pooler or without, and with its settings of the head.

    What stands on the command line (`heads.class.dense=true`) stays.
    """
    told = {word.lstrip("+").partition("=")[0] for word in flags.overrides}
    settings = dict(cfg.model.get("classifier") or {})
    if not settings.pop("pooler", False):
        del cfg.heads["pooler"]
    for name in {"class", "score"} & set(cfg.heads):
        cfg.heads[name].update({key: value for key, value in settings.items() if f"heads.{name}.{key}" not in told})


def build_task(cfg: DictConfig, flags: Flags) -> Task:
    task = build(cfg.task, {"pooling": scoring.pooling(cfg)}, flags.plugins, path="task")
    if not isinstance(task, Task):
        raise UsageError(f"task={cfg.task.get('name') or cfg.task['_target_']} is for plmctl eval, it has nothing to train")
    return task


def _check_files(task: Task) -> None:
    """Everything that can be wrong with files and labels, before anything is written."""
    task.fit_labels(task.read("train"))
    for name in _devs(task):
        task.fit_labels(task.read(name))


def _check_model(cfg: DictConfig, task: Task, flags: Flags) -> Model:
    """The model without its numbers: whether its parts fit, and whether `train.frozen` names some of them."""
    cfg = cfg.copy()
    settle(cfg, task)
    size = open_source(cfg.checkpoint).vocab_size if cfg.checkpoint else cfg.tokenizer.get("vocab_size") or 0
    with torch.device("meta"):
        model = build_model(cfg, vocab_size=int(size) or 1, plugins=flags.plugins)
    apply_freezing(model, trainable=cfg.train.trainable, frozen=cfg.train.frozen)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        fix = "freeze less: train.frozen=[backbone]"
        raise ConfigError("train.frozen", plain(cfg.train.frozen), "something must be left to train", fix=fix)
    return model


def _devs(task: Task) -> list[str]:
    return [name for name in task.reader.splits if name.startswith("dev") and task.has(name)]


def _tokenizer(cfg: DictConfig, flags: Flags) -> Tokenizer:
    """The run's, where an earlier sitting saved it; else the checkpoint's, or a new one, the same in every process."""
    if flags.resume and (Path(cfg.run.dir) / TOKENIZER / META).is_file():
        return Tokenizer.load(Path(cfg.run.dir) / TOKENIZER)
    if cfg.checkpoint is not None:
        return open_source(cfg.checkpoint).tokenizer
    if cfg.tokenizer.get("path"):
        return Tokenizer.load(cfg.tokenizer.path)
    return _fresh_tokenizer(cfg, flags)


def _fresh_tokenizer(cfg: DictConfig, flags: Flags) -> Tokenizer:
    """One that is trained on `data.path`, or on the texts of the task where no other text is given."""
    if cfg.data.path:
        from plmctl.text.reader import documents

        texts = [s for d in documents(cfg.data.path, field=cfg.data.field, lines=cfg.data.lines) for s in d.sentences]
    else:
        texts = [str(text) for example in build_task(cfg, flags).read("train") for text in _texts(example.fields)]
    return Tokenizer.learn(texts, build(cfg.tokenizer, path="tokenizer"))


def _texts(fields: Any) -> list[str]:
    return [" ".join(value) if isinstance(value, list) else value for name, value in fields.items() if name != "answers"]


def splits(task: Task, tokenizer: Tokenizer) -> dict[str, Split]:
    """train and every dev split that is there, encoded; `fit_labels` has seen train."""
    train = task.read("train")
    task.fit_labels(train)
    found = {"train": train, **{name: task.read(name) for name in _devs(task)}}
    return {name: inference.encoded(task, name, examples, tokenizer) for name, examples in found.items()}


def train(session: Session, tokenizer: Tokenizer) -> Result:
    """Read, encode, build, fit; then score the best checkpoint and write predictions/ and result.json."""
    cfg, world = session.cfg, session.world
    task = build_task(cfg, session.flags)
    if world.main and not (session.folder / TOKENIZER / META).is_file():
        tokenizer.save(session.folder / TOKENIZER)
    data = splits(task, tokenizer)
    for split in data.values():
        session.say(f"{split.name}: {len(split.examples)} examples; {inference.truncation(split.rows) or 'nothing is cut'}")
    if "dev" not in data:
        session.say(f"no dev split (it would be {' or '.join(task.reader.splits['dev'])}): nothing is scored, the last is kept")
    if passed := inference.counted(task.reader.skipped):
        session.say(passed)
    settle(cfg, task)
    model = _model(session, task, tokenizer)
    batches = Batches(
        data["train"].rows, batch_size=cfg.train.batch_size, micro_batch_size=cfg.train.micro_batch_size, seed=cfg.seed,
        world=world.size, rank=world.rank,
    )  # fmt: skip
    every = batches.updates_per_epoch

    def evaluate(model: Model) -> dict[str, float]:
        return scoring.predict(model, task, data["dev"], precision=session.precision)[1] if world.main else {}

    result = fit(
        session, model=model, objective=task, budget=_budget(cfg, every),
        stages=[Stage(batches=lambda: batches, trainable=cfg.train.trainable, frozen=cfg.train.frozen)],
        evaluate=evaluate if "dev" in data else None, extras=lambda folder: tokenizer.save(folder / TOKENIZER),
        keep_best=task.metrics[0], best_is_largest=True,
        settings={name: every for name in ("eval_every", "save_every") if cfg.train[name] is None},
    )  # fmt: skip
    if world.main and not result.exit_code:
        best = _conclude(session, task, model, {name: split for name, split in data.items() if name != "train"})
        return replace(result, checkpoint=best)
    return result


def settle(cfg: DictConfig, task: Task) -> None:
    """Write into the config, which every checkpoint carries, what labels and task decided: outputs, names, longest row."""
    if task.label_names is not None:
        cfg.task.label_names = task.label_names
    node = cfg.heads[task.head]
    if "num_classes" in parameters(locate(node["_target_"])):
        node.num_classes = task.outputs
    cfg.position = settled({**plain(cfg), "format": {"max_length": task.max_length}})["position"]


def _model(session: Session, task: Task, tokenizer: Tokenizer) -> Model:
    """First weights by `seed`, those of new heads by `head_seed`, then whatever the checkpoint has."""
    cfg = session.cfg
    resuming = Checkpoints(session.folder / "checkpoints", say=lambda message: None).newest() if session.flags.resume else None
    source = open_source(resuming or cfg.checkpoint) if resuming or cfg.checkpoint else None
    size = source.vocab_size if source else tokenizer.vocab.size
    model = build_model(cfg, vocab_size=size, vocab=tokenizer.vocab, seed=cfg.seed, plugins=session.flags.plugins)
    head_seed = cfg.seed if cfg.head_seed is None else cfg.head_seed
    initialize = cast(Callable[..., None], model.backbone.initializer)
    initialize(model.heads, generator=torch.Generator().manual_seed(head_seed))
    if source and not resuming:
        take(model, source.tensors, source=cfg.checkpoint, say=session.say)
    return model


def _budget(cfg: DictConfig, updates_per_epoch: int) -> Budget:
    length = {name: cfg.train[name] for name in ("steps", "tokens", "epochs", "minutes")}
    return Budget.of(**length, updates_per_epoch=updates_per_epoch)


def _conclude(session: Session, task: Task, model: Model, devs: dict[str, Split]) -> Path:
    """Scores of the checkpoint that did best, from the very predictions that are saved; returns that checkpoint."""
    best = find(session.folder)
    load_exactly(model, read(best).model, file=best)
    metrics = {}
    for name, split in devs.items():
        predictions, metrics[name] = scoring.predict(model, task, split, precision=session.precision)
        scoring.write_predictions(session.folder / "predictions", name, predictions)
    record = {"task": task.name, "checkpoint": str(best), "labels": task.label_names, "skipped": task.reader.skipped}
    (session.folder / "result.json").write_text(json.dumps({**record, "metrics": metrics}, indent=1), encoding="utf-8")
    extra = {"predictions": str(session.folder / "predictions")} if metrics else {}
    scoring.show(f"{task.name}: {best.name}", metrics, as_json=session.flags.json, extra=extra)
    return best


def _dry_run(cfg: DictConfig, flags: Flags) -> int:
    """Examples, labels, updates and parameters; nothing is written."""
    task = build_task(cfg, flags)
    examples = task.read("train")
    task.fit_labels(examples)
    model = _check_model(cfg, task, flags)
    updates = -(-len(examples) // cfg.train.batch_size)
    parts = {"backbone": model.backbone, **{f"heads.{name}": head for name, head in model.heads.items()}}
    counts = {f"parameters of {name}": count(part) for name, part in parts.items()}
    numbers = {"examples": len(examples), "labels": task.outputs, "updates an epoch, at least": updates, **counts}
    scoring.show(f"finetune task={task.name}", {"train": numbers}, as_json=flags.json, extra={})
    return 0
