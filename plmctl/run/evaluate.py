"""`plmctl eval`: score a checkpoint on a split, label new lines, write a submission, or measure
perplexity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.locate import locate
from plmctl.core.terminal import tell
from plmctl.heads.base import language_heads
from plmctl.knowledge.vectors import find_vectors
from plmctl.run.adapt import framing
from plmctl.run.assemble import longest
from plmctl.run.build import build, plain
from plmctl.run.classified_links import TripleClassifier, rank_classified
from plmctl.run.context_length import compare_contexts
from plmctl.run.described_links import rank_described
from plmctl.run.fact_completion import complete_facts
from plmctl.run.graph_evaluation import evaluate_vectors
from plmctl.run.held_out import score_held_out, suggest_task
from plmctl.run.loading import Loaded, load_for
from plmctl.run.measured_text import read_text
from plmctl.run.model_facts import reading
from plmctl.run.predict import predict, show_scores
from plmctl.run.schema import Evaluate
from plmctl.run.spec import Part
from plmctl.run.word_probes import probe_words
from plmctl.run.word_similarity import compare_words
from plmctl.storage.atomic import is_stream, refuse_existing
from plmctl.tasks import inference
from plmctl.tasks.base import Task
from plmctl.tasks.classified_links import ClassifiedLinks
from plmctl.tasks.context_length import ContextLength
from plmctl.tasks.described_links import DescribedLinks
from plmctl.tasks.fact_completion import FactCompletion
from plmctl.tasks.held_out import HeldOut
from plmctl.tasks.lm import LanguageModel
from plmctl.tasks.predictions import (
    FILES,
    beside,
    submission_file,
    write_predictions,
    write_rows,
    write_submission,
)
from plmctl.tasks.unlabelled import read_unlabelled
from plmctl.tasks.wnlampro import WNLaMPro
from plmctl.tasks.word_similarity import WordSimilarity
from plmctl.text import unknown
from plmctl.training.device.precision import Precision

ALSO = {"valid": "dev", "validation": "dev"}  # other words for the default split
# what training decided about a task, which counts in evaluation whatever is asked for
DECIDED = ("label_names", "joiner", "max_length", "source_template", "target_template")


def evaluate(spec: Evaluate) -> int:
    """Score the checkpoint, and show or write what was asked for."""
    if vectors := find_vectors(spec.checkpoint):
        if spec.task is not None:
            allowed = "null: vectors of a graph predict its links, and no other task"
            name = plain(spec.task).get("name", "...")
            raise ConfigError("task", name, allowed, fix="leave it out")
        return evaluate_vectors(spec, vectors)
    if spec.out is not None:
        _check_out(Path(spec.out), spec.overwrite)
    loaded, precision = load_for(spec)
    given = {
        "vocab": loaded.vocab,
        "trained_length": longest(loaded.config),
        **reading(loaded.config, spec.plugins),
    }
    task = build(_choose_task(spec, loaded), given, spec.plugins, path="task")
    if isinstance(task, LanguageModel):
        _measure_text(spec, loaded, task, precision)
    elif isinstance(task, ContextLength):
        compare_contexts(spec, loaded, task, precision)
    elif isinstance(task, WordSimilarity):
        compare_words(spec, loaded, task, precision)
    elif isinstance(task, DescribedLinks):
        rank_described(spec, loaded, task, precision)
    elif isinstance(task, ClassifiedLinks):
        rank_classified(spec, TripleClassifier(spec, loaded, task, precision, given))
    elif isinstance(task, WNLaMPro):
        probe_words(spec, loaded, task, precision)
    elif isinstance(task, FactCompletion):
        complete_facts(spec, loaded, task, precision)
    elif isinstance(task, HeldOut):
        extra = {"checkpoint": str(loaded.source.folder)}
        scores = score_held_out(spec, loaded, task, precision)
        show_scores("held-out rows", scores, as_json=spec.provenance.json, extra=extra)
    else:
        if task.path != loaded.own_task().get("path"):
            task.dev_share = 0  # all examples are asked of a file that was not trained on
        act = _write_submission if spec.provenance.submission else _score_split
        act(spec, loaded, task, precision)
    return 0


def _score_split(spec: Evaluate, loaded: Loaded, task: Task, precision: Precision) -> None:
    """Write the predictions of one split, or of the texts of `input`, and show their scores."""
    name = ALSO.get(spec.split, spec.split)
    if spec.input is None:
        examples = task.read(name)
    else:
        name, examples = read_unlabelled(task, spec.input)
    split = inference.encode_split(task, name, examples, loaded.tokenizer)
    predictions, metrics = _predict(spec, loaded, task, split, precision)
    out = _choose_out(spec, loaded)
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
    extra = {
        "task": task.name,
        "checkpoint": str(loaded.source.folder),
        "rows": len(predictions),
        "predictions": str(file),
        **{key: remark for key, remark in remarks.items() if remark},
    }
    scored = spec.input is None or inference.is_answered(examples)
    scores = {name: metrics} if metrics and scored else {}
    show_scores(f"{task.name}: {name}", scores, as_json=spec.provenance.json, extra=extra)


def _write_submission(spec: Evaluate, loaded: Loaded, task: Task, precision: Precision) -> None:
    """Write the file of a leader board for every split that is there."""
    out = _choose_out(spec, loaded)
    files = {split: name for split, name in task.submission.items() if task.has(split)}
    if not files:
        wanted = ", ".join(task.submission) or "none: this task has no leader board"
        raise UsageError(
            f"--submission: no split of {task.name} in {task.path} is asked for (it is {wanted})"
        )
    for name in files.values():
        submission_file(out, name)
    for split, name in files.items():
        rows = inference.encode_split(task, split, task.read(split), loaded.tokenizer)
        predictions, _ = _predict(spec, loaded, task, rows, precision)
        tell(write_submission(out, name, task.submit(predictions)))


def _predict(
    spec: Evaluate, loaded: Loaded, task: Task, split: inference.Split, precision: Precision
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    size, digits = spec.batch_size, precision.digits
    return predict(loaded.model, task, split, precision=precision, batch_size=size, digits=digits)


def _choose_task(spec: Evaluate, loaded: Loaded) -> dict[str, Any]:
    """The config of the task that is asked for, else of the one that the checkpoint was fine-tuned
    on, whose labels and length count in any case.
    """
    own = loaded.own_task()
    changed = sorted(key for key in spec.provenance.keys if key.startswith("task."))
    if spec.task is None:
        if changed:
            fix = f"task={own.get('name', '<name>')} before it"
            raise ConfigError(changed[0], "", "of which task?", fix=fix)
        if not own:
            others = "the run of a finetune, or task=<name> for a published classifier"
            what, fix = "it was not fine-tuned on a task", f"{suggest_task(loaded)}{others}"
            raise ConfigError("checkpoint", spec.checkpoint, what, fix=fix)
        return own
    asked: dict[str, Any] = plain(spec.task)
    kind = locate(asked["_target_"], spec.plugins)
    if not (isinstance(kind, type) and issubclass(kind, Task)):
        return asked  # the model itself says whether it has the heads
    decided = {name: own[name] for name in DECIDED if name in own}
    if own.get("name") == asked.get("name"):
        # only what stands on the command line differs from training
        merged = Part(own)
        for key in changed:
            merged = merged.with_value(key.removeprefix("task."), spec.select(key))
        return {**plain(merged), **decided}
    if own.get("_target_") == asked["_target_"]:
        return {**asked, **decided}
    # a task that writes needs no head of its own: a Transformer is pretrained to translate
    writes = not getattr(kind, "has_classes", True)
    if not own and (writes or getattr(kind, "head", None) in (loaded.config.get("heads") or {})):
        return {**asked, **_read_published(asked, loaded)}
    trained = f"fine-tuned on {own['name']}" if own else "not fine-tuned"
    what, fix = f"{spec.checkpoint} was {trained}", f"task={asked.get('name')} checkpoint=..."
    raise ConfigError("task", asked.get("name"), what, fix=f"plmctl finetune {fix}")


def _read_published(asked: Mapping[str, Any], loaded: Loaded) -> dict[str, Any]:
    """What a Hugging Face folder says of the task it was fine-tuned on: its template, the names of
    its labels, and its longest row.
    """
    config, length = loaded.config, asked["max_length"]
    settings: dict[str, Any] = {"max_length": min(length, longest(config) or length)}
    settings |= {name: text for name, text in framing(config).items() if asked.get(name, 0) is None}
    if "label_names" in asked and (names := config.get("labels") or asked["label_names"]):
        settings["label_names"] = names
    return settings


def _choose_out(spec: Evaluate, loaded: Loaded) -> Path:
    """`out`, else eval/ in the run; beside a published folder, which is not ours to write into,
    eval/ here.
    """
    return Path(spec.out) if spec.out else (loaded.source.run or Path()) / "eval"


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
        allowed = f"a folder, or a file that ends with {', '.join(FILES)}"
        raise ConfigError("out", str(out), allowed, fix=f"out={out.with_suffix('.csv')}")


def _measure_text(
    spec: Evaluate, loaded: Loaded, task: LanguageModel, precision: Precision
) -> None:
    """Show the perplexity of a text."""
    path, model = plain(spec.data.path), loaded.model
    if not language_heads(model):
        has, fix = ", ".join(model.heads) or "no head", "a checkpoint with such a head"
        raise UsageError(
            f"task=lm asks a head that predicts tokens of a text; this checkpoint has {has}\n"
            f"  fix: {suggest_task(loaded)}{fix}"
        )
    text = read_text(spec.data, path, loaded.tokenizer)
    share = unknown.unknown_share([token for ids in text.ids for token in ids], loaded.vocab)
    fix = "a checkpoint whose tokenizer knows this text"
    unknown.refuse_unknown(share, file=path, fix=fix)
    train = None
    if task.dynamic is not None and task.dynamic.train_path is not None:
        data = replace(spec.data, bytes=None)
        train = read_text(data, task.dynamic.train_path, loaded.tokenizer)
    with torch.no_grad(), precision.autocast():
        scores = task.measure(
            model,
            text,
            loaded.vocab,
            batch_size=spec.batch_size,
            device=precision.device,
            train=train,
        )
    extra = {"checkpoint": str(loaded.source.folder), "text": str(path)}
    if share:
        extra["unknown"] = unknown.describe_unknown(share)
    title, as_json = "language model", spec.provenance.json
    show_scores(title, {"text": scores}, as_json=as_json, extra=extra)
