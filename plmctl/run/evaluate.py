"""`plmctl eval`: score a checkpoint on a split, label new lines, write a submission, or measure
perplexity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.locate import locate
from plmctl.core.terminal import tell
from plmctl.heads.base import language_heads
from plmctl.run import loading
from plmctl.run.adapt import framing
from plmctl.run.assemble import longest
from plmctl.run.build import build, plain
from plmctl.run.held_out import score, unlabelled
from plmctl.run.loading import Loaded
from plmctl.run.model_facts import reading
from plmctl.run.plugins import confirm, named
from plmctl.run.predict import predict, show_scores
from plmctl.run.schema import Evaluate
from plmctl.run.spec import Part
from plmctl.storage.atomic import is_stream, refuse_existing
from plmctl.tasks import inference
from plmctl.tasks.base import Task
from plmctl.tasks.held_out import HeldOut
from plmctl.tasks.lm import LanguageModel, Text
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
from plmctl.text.reader import read_documents
from plmctl.training.device.precision import Precision, choose
from plmctl.training.processes.world import device_of

ALSO = {"valid": "dev", "validation": "dev"}  # other words for the default split


def evaluate(spec: Evaluate) -> int:
    """Score the checkpoint, and show or write what was asked for."""
    if spec.out is not None:
        _check_out(Path(spec.out), spec.overwrite)
    loaded = loading.load(spec.checkpoint, plugins=spec.plugins)
    precision = choose(spec.precision, device_of(spec.device, "device"))
    loaded.model.to(precision.device)
    given = {
        "vocab": loaded.vocab,
        "trained_length": longest(loaded.config),
        **reading(loaded.config, spec.plugins),
    }
    task = build(_task_node(spec, loaded), given, spec.plugins, path="task")
    if isinstance(task, LanguageModel):
        _measure_text(spec, loaded, task, precision)
    elif isinstance(task, HeldOut):
        scores = score(spec, loaded, task, precision)
        _show(spec, loaded, "held-out rows", scores)
    elif spec.provenance.submission:
        _submit(spec, loaded, _asking_all(task, loaded), precision)
    else:
        _score_split(spec, loaded, _asking_all(task, loaded), precision)
    return 0


def _asking_all(task: Task, loaded: Loaded) -> Task:
    """Of another file than that of training, all examples are asked."""
    if task.path != (loaded.config.get("task") or {}).get("path"):
        task.dev_share = 0
    return task


def _score_split(spec: Evaluate, loaded: Loaded, task: Task, precision: Precision) -> None:
    """Predictions of one split, or of the texts of `input`, to a file, and their scores."""
    name = ALSO.get(spec.split, spec.split)
    if spec.input is None:
        examples = task.read(name)
    else:
        name, examples = read_unlabelled(task, spec.input)
    split = inference.encode_split(task, name, examples, loaded.tokenizer)
    predictions, metrics = _predict(spec, loaded, task, split, precision)
    out = Path(spec.out) if spec.out else _home(loaded)
    rows: Sequence[dict[str, Any]] = predictions
    if _is_file(out) or spec.input is not None:
        rows = beside(spec.input, examples, predictions)
    file = write_rows(out, rows) if _is_file(out) else write_predictions(out, name, rows)
    remarks = {
        "cut": inference.describe_truncation(split.rows),
        "unknown": unknown.describe_unknown(inference.unknown(split.rows, loaded.vocab)),
        "read": "; ".join(inference.describe_reading(task.reader)),
        "files": "; ".join(task.remarks),
        "signatures": task.signatures,
    }
    _show(
        spec,
        loaded,
        f"{task.name}: {name}",
        {name: metrics} if metrics else {},
        before={"task": task.name},
        after={
            "rows": len(predictions),
            "predictions": str(file),
            **{key: remark for key, remark in remarks.items() if remark},
        },
    )


def _predict(
    spec: Evaluate, loaded: Loaded, task: Task, split: inference.Split, precision: Precision
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    return predict(
        loaded.model,
        task,
        split,
        precision=precision,
        batch_size=spec.batch_size,
        digits=precision.digits,
    )


def _show(
    spec: Evaluate,
    loaded: Loaded,
    title: str,
    scores: Mapping[str, Mapping[str, float]],
    *,
    before: Mapping[str, Any] = Part({}),
    after: Mapping[str, Any] = Part({}),
) -> None:
    """The scores of a checkpoint, with what is said before and after its name."""
    extra = {**before, "checkpoint": str(loaded.source.folder), **after}
    show_scores(title, scores, as_json=spec.provenance.json, extra=extra)


def _task_node(spec: Evaluate, loaded: Loaded) -> dict[str, Any]:
    """The task that is asked for, else the one the checkpoint was fine-tuned on, whose labels
    and length hold in any case.
    """
    own = loaded.config.get("task") or {}
    confirm(named(own), spec.plugins, of=spec.checkpoint)
    words = (word.lstrip("+").partition("=")[0] for word in spec.provenance.overrides)
    told = [key for key in words if key.startswith("task.")]
    if spec.task is None and told:
        raise ConfigError(
            told[0], "", "of which task?", fix=f"task={own.get('name', '<name>')} before it"
        )
    if spec.task is None and not own:
        fix = (
            f"{unlabelled(loaded)}the run of a finetune, or task=<name> for a published classifier"
        )
        raise ConfigError("checkpoint", spec.checkpoint, "it was not fine-tuned on a task", fix=fix)
    given = own if spec.task is None else plain(spec.task)
    if not _is_labelled(given, spec.plugins) or given is own:
        return given  # in the first case the model itself says whether it has the heads
    if own.get("name") == given.get("name"):
        # only what stands on the command line is another than in training
        changed = Part(own)
        for key in told:
            changed = changed.with_value(key.removeprefix("task."), spec.select(key))
        return {**plain(changed), **_decided(own)}
    if own.get("_target_") == given["_target_"]:
        return {**given, **_decided(own)}
    kind = locate(given["_target_"], spec.plugins)
    # then pretraining has made the head: a Transformer trained to translate
    writes = not getattr(kind, "has_classes", True)
    if not own and (writes or getattr(kind, "head", None) in (loaded.config.get("heads") or {})):
        return {**given, **_published(given, loaded)}
    trained = f"{spec.checkpoint} was " + (
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


def _is_labelled(node: Mapping[str, Any], plugins: Sequence[str]) -> bool:
    part = locate(node["_target_"], plugins)
    return isinstance(part, type) and issubclass(part, Task)


def _home(loaded: Loaded) -> Path:
    """eval/ in the run; beside a published folder, which is not ours to write into, eval/ here."""
    folder = loaded.source.folder
    return folder.parents[1] / "eval" if folder.parent.name == "checkpoints" else Path("eval")


def _submit(spec: Evaluate, loaded: Loaded, task: Task, precision: Precision) -> None:
    """GLUE's files for every test split that is there."""
    out = Path(spec.out) if spec.out else _home(loaded)
    there = {split: name for split, name in task.submission.items() if task.has(split)}
    if not there:
        wanted = ", ".join(task.submission) or "none: this task has no leader board"
        raise UsageError(
            f"--submission: no test split of {task.name} in {task.path} (it takes {wanted})"
        )
    for name in there.values():
        submission_file(out, name)
    for split, name in there.items():
        data = inference.encode_split(task, split, task.read(split), loaded.tokenizer)
        predictions, _ = _predict(spec, loaded, task, data, precision)
        tell(write_submission(out, name, predictions))


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


def _measure_text(
    spec: Evaluate, loaded: Loaded, task: LanguageModel, precision: Precision
) -> None:
    """The perplexity of a text."""
    if spec.data.path is None:
        raise ConfigError(
            "data.path", None, "task=lm needs a text", fix="data.path=<file, folder or pattern>"
        )
    if not language_heads(loaded.model):
        has = ", ".join(loaded.model.heads) or "no head"
        fix = f"{unlabelled(loaded)}a checkpoint with such a head"
        raise UsageError(
            f"task=lm asks a head that predicts tokens of a text; this checkpoint has {has}\n"
            f"  fix: {fix}"
        )
    text = Text.of(_texts(spec), loaded.tokenizer)
    share = unknown.unknown_share([token for ids in text.ids for token in ids], loaded.vocab)
    unknown.refuse_unknown(
        share, file=plain(spec.data.path), fix="a checkpoint whose tokenizer knows this text"
    )
    with torch.no_grad(), precision.autocast():
        found = task.measure(
            loaded.model, text, loaded.vocab, batch_size=spec.batch_size, device=precision.device
        )
    after = {"text": str(plain(spec.data.path))}
    if told := unknown.describe_unknown(share):
        after["unknown"] = told
    _show(spec, loaded, "language model", {"text": found}, after=after)


def _texts(spec: Evaluate) -> Iterator[str]:
    """Whole documents; parts of a long one are put together again."""
    parts: list[str] = []
    for document in read_documents(
        plain(spec.data.path), field=spec.data.field, lines=spec.data.lines
    ):
        if parts and not document.continues:
            yield "".join(parts)
            parts = []
        parts += document.segments
    yield "".join(parts)
