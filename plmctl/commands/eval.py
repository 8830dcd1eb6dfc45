"""`plmctl eval`: score a checkpoint on a split, label new lines, write a submission, or measure
perplexity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.locate import locate
from plmctl.core.terminal import tell
from plmctl.run import loading
from plmctl.run.adapt import framing
from plmctl.run.assemble import longest
from plmctl.run.build import build, plain
from plmctl.run.compose import Flags
from plmctl.run.held_out import score, unlabelled
from plmctl.run.loading import Loaded
from plmctl.run.model_facts import reading
from plmctl.run.plugins import confirm, named
from plmctl.run.predict import predict, show_scores
from plmctl.storage.atomic import is_stream, refuse_existing
from plmctl.tasks import inference
from plmctl.tasks.base import Task
from plmctl.tasks.held_out import HeldOut
from plmctl.tasks.lm import HEADS, LanguageModel, Text
from plmctl.tasks.predictions import (
    FILES,
    beside,
    submission_file,
    write_predictions,
    write_rows,
    write_submission,
)
from plmctl.tasks.unlabelled import read_unlabelled
from plmctl.text import unknown
from plmctl.text.reader import documents
from plmctl.training.device.precision import Precision, choose
from plmctl.training.processes.world import device_of

ALSO = {"valid": "dev", "validation": "dev"}  # other words for the default split


def run(cfg: DictConfig, flags: Flags) -> int:
    if cfg.out is not None:
        _check_out(Path(cfg.out), cfg.overwrite)
    loaded = loading.load(cfg.checkpoint, plugins=flags.plugins)
    precision = choose(cfg.precision, device_of(cfg.device, "device"))
    loaded.model.to(precision.device)
    given = {
        "vocab": loaded.vocab,
        "trained_length": longest(loaded.config),
        **reading(loaded.config, flags.plugins),
    }
    part = build(_task_node(cfg, loaded, flags), given, flags.plugins, path="task")
    if isinstance(part, LanguageModel):
        return _measure(cfg, flags, loaded, part, precision)
    if isinstance(part, HeldOut):
        scores = score(cfg, flags, loaded, part, precision)
        show_scores(
            "held-out rows",
            scores,
            as_json=flags.json,
            extra={"checkpoint": str(loaded.source.folder)},
        )
        return 0
    assert isinstance(part, Task)
    if part.path != (loaded.config.get("task") or {}).get("path"):
        part.dev_share = 0  # of another file than that of training, all examples are asked
    out = Path(cfg.out) if cfg.out else _home(loaded)
    if flags.submission:
        return _submit(cfg, loaded, part, precision, out)
    name = ALSO.get(cfg.split, cfg.split)
    name, examples = (
        (name, part.read(name)) if cfg.input is None else read_unlabelled(part, cfg.input)
    )
    split = inference.encoded(part, name, examples, loaded.tokenizer)
    found, metrics = predict(
        loaded.model,
        part,
        split,
        precision=precision,
        batch_size=cfg.batch_size,
        digits=precision.digits,
    )
    if _is_file(out):
        file = write_rows(out, beside(cfg.input, examples, found))
    else:
        file = write_predictions(
            out, name, found if cfg.input is None else beside(cfg.input, examples, found)
        )
    extra = {
        "task": part.name,
        "checkpoint": str(loaded.source.folder),
        "rows": len(found),
        "predictions": str(file),
    }
    if cut := inference.truncation(split.rows):
        extra["cut"] = cut
    if told := unknown.told(inference.unknown(split.rows, loaded.vocab)):
        extra["unknown"] = told
    if notes := inference.noted(part.reader):
        extra["read"] = "; ".join(notes)
    if part.remarks:
        extra["files"] = "; ".join(part.remarks)
    if part.signatures:
        extra["signatures"] = part.signatures
    show_scores(
        f"{part.name}: {name}", {name: metrics} if metrics else {}, as_json=flags.json, extra=extra
    )
    return 0


def _task_node(cfg: DictConfig, loaded: Loaded, flags: Flags) -> dict[str, Any]:
    """The task that is asked for, else the one the checkpoint was fine-tuned on, whose labels
    and length hold in any case.
    """
    own = loaded.config.get("task") or {}
    confirm(named(own), flags.plugins, of=cfg.checkpoint)
    told = [
        key
        for word in flags.overrides
        if (key := word.lstrip("+").partition("=")[0]).startswith("task.")
    ]
    if cfg.task is None and told:
        raise ConfigError(
            told[0], "", "of which task?", fix=f"task={own.get('name', '<name>')} before it"
        )
    if cfg.task is None and not own:
        fix = (
            f"{unlabelled(loaded)}the run of a finetune, or task=<name> for a published classifier"
        )
        raise ConfigError("checkpoint", cfg.checkpoint, "it was not fine-tuned on a task", fix=fix)
    given = own if cfg.task is None else plain(cfg.task)
    if not _is_labelled(given, flags) or given is own:
        return given  # in the first case the model itself says whether it has the heads
    if own.get("name") == given.get("name"):
        node = OmegaConf.create(own)
        for key in told:  # only what stands on the command line is another than in training
            OmegaConf.update(
                node, key.removeprefix("task."), OmegaConf.select(cfg, key), force_add=True
            )
        return {**plain(node), **_decided(own)}
    if own.get("_target_") == given["_target_"]:
        return {**given, **_decided(own)}
    kind = locate(given["_target_"], flags.plugins)
    # then pretraining has made the head: a Transformer trained to translate
    writes = not getattr(kind, "has_classes", True)
    if not own and (writes or getattr(kind, "head", None) in (loaded.config.get("heads") or {})):
        return {**given, **_published(given, loaded)}
    trained = f"{cfg.checkpoint} was " + (
        f"fine-tuned on {own['name']}" if own else "not fine-tuned"
    )
    raise ConfigError(
        "task",
        given.get("name"),
        trained,
        fix=f"plmctl finetune task={given.get('name')} checkpoint=...",
    )


def _decided(own: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: own[name]
        for name in ("label_names", "joiner", "max_length", "source_template", "target_template")
        if name in own
    }


def _published(given: Mapping[str, Any], loaded: Loaded) -> dict[str, Any]:
    """What a Hugging Face folder says of the task it was fine-tuned on: the names of its labels,
    and its longest row.
    """
    bound = longest(loaded.config)
    found: dict[str, Any] = {"max_length": min(given["max_length"], bound or given["max_length"])}
    found |= {
        name: value for name, value in framing(loaded.config).items() if given.get(name, 0) is None
    }
    if "label_names" in given and (names := loaded.config.get("labels") or given["label_names"]):
        found["label_names"] = names
    return found


def _is_labelled(node: dict[str, Any], flags: Flags) -> bool:
    part = locate(node["_target_"], flags.plugins)
    return isinstance(part, type) and issubclass(part, Task)


def _home(loaded: Loaded) -> Path:
    """eval/ in the run; beside a published folder, which is not ours to write into, eval/ here."""
    folder = loaded.source.folder
    return folder.parents[1] / "eval" if folder.parent.name == "checkpoints" else Path("eval")


def _submit(cfg: DictConfig, loaded: Loaded, task: Task, precision: Precision, out: Path) -> int:
    """GLUE's files for every test split that is there."""
    there = {split: name for split, name in task.submission.items() if task.has(split)}
    if not there:
        wanted = ", ".join(task.submission) or "none: this task has no leader board"
        raise UsageError(
            f"--submission: no test split of {task.name} in {task.path} (it takes {wanted})"
        )
    for name in there.values():
        submission_file(out, name)
    for split, name in there.items():
        data = inference.encoded(task, split, task.read(split), loaded.tokenizer)
        found, _ = predict(
            loaded.model,
            task,
            data,
            precision=precision,
            batch_size=cfg.batch_size,
            digits=precision.digits,
        )
        tell(write_submission(out, name, found))
    return 0


def _is_file(out: Path) -> bool:
    """Whether predictions are written to one file, not into a folder."""
    return not out.is_dir() and (out.suffix in FILES or is_stream(out))


def _check_out(out: Path, overwrite: bool) -> None:
    """ConfigError for a file of no known kind, UsageError for one that would be written over
    unasked.
    """
    if _is_file(out):
        refuse_existing(out, overwrite)
    elif out.is_file() or out.suffix in (".json", ".txt", ".xlsx", ".parquet"):
        fix = f"out={out.with_suffix('.csv')}"
        raise ConfigError(
            "out", str(out), f"a folder, or a file that ends with {', '.join(FILES)}", fix=fix
        )


def _measure(
    cfg: DictConfig, flags: Flags, loaded: Loaded, part: LanguageModel, precision: Precision
) -> int:
    if cfg.data.path is None:
        raise ConfigError(
            "data.path", None, "task=lm needs a text", fix="data.path=<file, folder or pattern>"
        )
    if not HEADS & set(loaded.model.heads):
        has = ", ".join(loaded.model.heads) or "no head"
        fix = f"{unlabelled(loaded)}a checkpoint with such a head"
        raise UsageError(
            f"task=lm asks a head 'clm' or 'mlm'; this checkpoint has {has}\n  fix: {fix}"
        )
    text = Text.of(_texts(cfg), loaded.tokenizer)
    share = unknown.unknown_share([token for ids in text.ids for token in ids], loaded.vocab)
    unknown.refuse_unknown(
        share, file=plain(cfg.data.path), fix="a checkpoint whose tokenizer knows this text"
    )
    with torch.no_grad(), precision.autocast():
        found = part.measure(
            loaded.model, text, loaded.vocab, batch_size=cfg.batch_size, device=precision.device
        )
    extra = {"checkpoint": str(loaded.source.folder), "text": str(cfg.data.path)}
    if told := unknown.told(share):
        extra["unknown"] = told
    show_scores("language model", {"text": found}, as_json=flags.json, extra=extra)
    return 0


def _texts(cfg: DictConfig) -> Iterator[str]:
    """Whole documents; parts of a long one are put together again."""
    parts: list[str] = []
    for document in documents(cfg.data.path, field=cfg.data.field, lines=cfg.data.lines):
        if parts and not document.continues:
            yield "".join(parts)
            parts = []
        parts += document.segments
    yield "".join(parts)
