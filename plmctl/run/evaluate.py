"""`plmctl eval`: score a checkpoint on a split, label new lines, write a submission, or measure
perplexity.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.terminal import tell
from plmctl.heads.base import language_heads
from plmctl.knowledge.vectors import find_vectors
from plmctl.run.asked_task import (
    ask_all,
    check_out,
    choose_out,
    choose_task,
    describe_model,
    read_examples,
    write_split,
)
from plmctl.run.build import build, plain
from plmctl.run.by_task import evaluate_by_task
from plmctl.run.calibrating import calibrate, decide_again, describe_calibration
from plmctl.run.classified_links import TripleClassifier, rank_classified
from plmctl.run.context_length import compare_contexts
from plmctl.run.described_links import rank_described
from plmctl.run.ensemble import evaluate_together
from plmctl.run.fact_completion import complete_facts
from plmctl.run.graph_evaluation import evaluate_vectors
from plmctl.run.held_out import score_held_out, suggest_task
from plmctl.run.loading import Loaded, load_for
from plmctl.run.measured_text import read_text
from plmctl.run.predict import predict, show_scores
from plmctl.run.ranking import rank_corpus
from plmctl.run.schema import Evaluate
from plmctl.run.sentence_similarity import compare_sentences
from plmctl.run.word_probes import probe_words
from plmctl.run.word_similarity import compare_words
from plmctl.tasks import inference
from plmctl.tasks.base import Task
from plmctl.tasks.classified_links import ClassifiedLinks
from plmctl.tasks.context_length import ContextLength
from plmctl.tasks.described_links import DescribedLinks
from plmctl.tasks.fact_completion import FactCompletion
from plmctl.tasks.held_out import HeldOut
from plmctl.tasks.intervals import find_intervals
from plmctl.tasks.lm import LanguageModel
from plmctl.tasks.predictions import submission_file, write_submission
from plmctl.tasks.ranking import RankingTask
from plmctl.tasks.sentence_similarity import SentenceSimilarity
from plmctl.tasks.wnlampro import WNLaMPro
from plmctl.tasks.word_similarity import WordSimilarity
from plmctl.text import unknown
from plmctl.training.device.precision import Precision


def evaluate(spec: Evaluate) -> int:
    """Score the checkpoint, and show or write what was asked for."""
    if spec.by is not None:
        return evaluate_by_task(spec)
    if not isinstance(spec.checkpoint, str):
        if len(spec.checkpoint) > 1:
            return evaluate_together(spec)
        spec = replace(spec, checkpoint=spec.checkpoint[0])
    if vectors := find_vectors(str(spec.checkpoint)):
        if spec.task is not None:
            allowed = "null: vectors of a graph predict its links, and no other task"
            name = plain(spec.task).get("name", "...")
            raise ConfigError("task", name, allowed, fix="leave it out")
        return evaluate_vectors(spec, vectors)
    if spec.out is not None:
        check_out(Path(spec.out), spec.overwrite)
    loaded, precision = load_for(spec)
    given = describe_model(loaded, spec.plugins)
    task = build(choose_task(spec, loaded), given, spec.plugins, path="task")
    if isinstance(task, LanguageModel):
        _measure_text(spec, loaded, task, precision)
    elif isinstance(task, ContextLength):
        compare_contexts(spec, loaded, task, precision)
    elif isinstance(task, WordSimilarity):
        compare_words(spec, loaded, task, precision)
    elif isinstance(task, SentenceSimilarity):
        compare_sentences(spec, loaded, task, precision)
    elif isinstance(task, RankingTask):
        rank_corpus(spec, loaded, task, precision)
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
        whole = ask_all(spec, task, loaded)
        if spec.provenance.submission:
            _write_submission(spec, loaded, task, precision)
        else:
            _score_split(spec, loaded, task, precision, whole)
    return 0


def _score_split(
    spec: Evaluate, loaded: Loaded, task: Task, precision: Precision, whole: str
) -> None:
    """Write the predictions of one split, or of the texts of `input`, and show their scores.

    `whole`: a remark on files of which no part is held out.
    """
    name, examples = read_examples(spec, task)
    split = inference.encode_split(task, name, examples, loaded.tokenizer)
    predictions, metrics = _predict(spec, loaded, task, split, precision)
    before = predictions
    if spec.calibrate:
        calibrate(spec, loaded, task, name, predictions)
    predictions, decision = decide_again(loaded, task, predictions)
    if decision and metrics:
        metrics = {**metrics, **task.score(predictions)}
    file = write_split(spec, choose_out(spec, loaded), name, examples, predictions)
    remarks = {
        "cut": inference.describe_truncation(split.rows),
        "unknown": unknown.describe_unknown(inference.unknown(split.rows, loaded.vocab)),
        "read": "; ".join(inference.describe_reading(task.reader)),
        "files": "; ".join(task.remarks),
        "split": whole if spec.input is None else "",
        "signatures": task.signatures,
        "decision": decision,
        "calibration error": describe_calibration(before, predictions)
        if decision and metrics
        else "",
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
    intervals = {name: find_intervals(task, predictions, seed=spec.seed)} if scores else {}
    title, as_json = f"{task.name}: {name}", spec.provenance.json
    show_scores(title, scores, as_json=as_json, extra=extra, intervals=intervals)


def _write_submission(spec: Evaluate, loaded: Loaded, task: Task, precision: Precision) -> None:
    """Write the file of a leader board for every split that is there."""
    out = choose_out(spec, loaded)
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
        predictions, _ = decide_again(loaded, task, predictions)
        tell(write_submission(out, name, task.submit(predictions, name)))


def _predict(
    spec: Evaluate, loaded: Loaded, task: Task, split: inference.Split, precision: Precision
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    size, digits = spec.batch_size, precision.digits
    return predict(loaded.model, task, split, precision=precision, batch_size=size, digits=digits)


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
