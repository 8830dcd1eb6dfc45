"""`plmctl eval`: score a checkpoint on a split, label new lines, write a submission, or measure
perplexity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from plmctl.artifacts.loading import Loaded, load_for
from plmctl.config.build import build, plain
from plmctl.config.uses import Evaluate
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.terminal import tell
from plmctl.heads.base import language_heads
from plmctl.knowledge.vectors import find_vectors
from plmctl.probes.by_task import evaluate_by_task
from plmctl.probes.classified_links import TripleClassifier, rank_classified
from plmctl.probes.context_length import compare_contexts
from plmctl.probes.described_links import rank_described
from plmctl.probes.fact_completion import complete_facts
from plmctl.probes.graph_evaluation import evaluate_vectors
from plmctl.probes.held_out import score_held_out
from plmctl.probes.measured_text import read_text
from plmctl.probes.ranking import rank_corpus
from plmctl.probes.sentence_similarity import compare_sentences
from plmctl.probes.word_probes import probe_words
from plmctl.probes.word_similarity import compare_words
from plmctl.storage.reading import read_json
from plmctl.tasks import inference
from plmctl.tasks.classified_links import ClassifiedLinks
from plmctl.tasks.context_length import ContextLength
from plmctl.tasks.described_links import DescribedLinks
from plmctl.tasks.fact_completion import FactCompletion
from plmctl.tasks.held_out import HeldOut
from plmctl.tasks.lm import LanguageModel
from plmctl.tasks.predictions import submission_file
from plmctl.tasks.ranking import RankingTask
from plmctl.tasks.scores.below import FILE as BASELINES
from plmctl.tasks.scores.below import list_below
from plmctl.tasks.sentence_similarity import SentenceSimilarity
from plmctl.tasks.task import Task
from plmctl.tasks.wnlampro import WNLaMPro
from plmctl.tasks.word_analogies import WordAnalogies
from plmctl.tasks.word_similarity import WordSimilarity
from plmctl.text import unknown
from plmctl.training.device.precision import Precision
from plmctl.use.answering import AnsweredSplit, answer_split, predict_split
from plmctl.use.asked_task import (
    ask_all,
    check_out,
    choose_out,
    choose_task,
    describe_model,
    is_printed,
    name_file,
    suggest_task,
    write_for_board,
    write_split,
)
from plmctl.use.calibrating import decide_again
from plmctl.use.ensemble import evaluate_together
from plmctl.use.labelling import label_texts
from plmctl.use.perturbing import check_perturbed, refuse_perturbed, score_perturbed
from plmctl.use.predict import ScoreTable, Told
from plmctl.use.static_evaluation import evaluate_static, find_static, refuse_analogies


def evaluate(spec: Evaluate) -> int:
    """Score the checkpoint, and show or write what was asked for."""
    if spec.by is not None or (not isinstance(spec.checkpoint, str) and len(spec.checkpoint) > 1):
        refuse_perturbed(spec)
    if spec.by is not None:
        return evaluate_by_task(spec)
    if not isinstance(spec.checkpoint, str):
        if len(spec.checkpoint) > 1:
            return evaluate_together(spec)
        spec = replace(spec, checkpoint=spec.checkpoint[0])
    if vectors := find_vectors(str(spec.checkpoint)):
        table: ScoreTable | None = evaluate_vectors(_without_task(spec), vectors)
    elif static := find_static(str(spec.checkpoint)):
        table = evaluate_static(spec, static)
    else:
        table = _evaluate_model(spec)
    if table is not None:
        table.show(as_json=spec.provenance.json, aside=is_printed(spec))
    return 0


def _without_task(spec: Evaluate) -> Evaluate:
    """The spec itself; ConfigError for one with a task."""
    if spec.task is not None:
        allowed = "null: vectors of a graph predict its links, and no other task"
        name = plain(spec.task).get("name", "...")
        raise ConfigError("task", name, allowed, fix="leave it out")
    return spec


def _evaluate_model(spec: Evaluate) -> ScoreTable | None:
    """Write what is asked of a model, and return its scores; None for a submission."""
    if spec.out is not None:
        check_out(Path(spec.out), spec.overwrite, submission=spec.provenance.submission)
    loaded, precision = load_for(spec)
    task = make_task(spec, loaded)
    refuse_perturbed(spec, task)
    if (table := measure(spec, loaded, task, precision)) is not None:
        return table
    whole = ask_all(spec, task, loaded)
    if spec.provenance.submission:
        _write_submission(spec, loaded, task, precision)
        return None
    if spec.input is not None and not (spec.perturb or spec.calibrate):
        return label_texts(spec, loaded, task, precision)
    answered = answer_split(spec, loaded, task, precision, whole=whole)
    out, name = choose_out(spec, loaded), answered.name
    file = write_split(spec, out, name, answered.examples, answered.predictions)
    extra = {
        "task": task.name,
        "checkpoint": str(loaded.source.folder),
        "rows": len(answered.predictions),
        "predictions": name_file(file),
    }
    shown = answered.tabulate(task, extra | _compare_simple(loaded, task, answered), seed=spec.seed)
    if not spec.perturb:
        return shown
    check_perturbed(spec, answered.examples)
    before = (answered.predictions, answered.metrics)
    given = (spec, loaded, task, precision, name, answered.examples)
    scores, remarks = score_perturbed(*given, before)
    return replace(shown, metrics=scores, extra={**shown.extra, **remarks})


def _compare_simple(loaded: Loaded, task: Task, answered: AnsweredSplit) -> dict[str, Told]:
    """Whether the scores of the run's own split are below those of models without pretraining."""
    folders = [loaded.source.folder, *loaded.source.folder.parents[:2]]
    file = next((own / BASELINES for own in folders if (own / BASELINES).is_file()), None)
    if file is None or not task.metrics:
        return {}
    simple = {
        split: own
        for split, own in read_json(file).items()
        if split == answered.name and _has_examples(file.parent, split, len(answered.predictions))
    }
    lines = list_below({answered.name: answered.metrics}, simple, task.metrics[0])
    return {"below the baselines": Told("; ".join(lines), len(lines))} if lines else {}


def _has_examples(run: Path, split: str, count: int) -> bool:
    """Whether the scores of the run are of as many examples."""
    result = run / "result.json"
    known = read_json(result).get("examples") or {} if result.is_file() else {}
    return bool(known.get(split) == count)


def make_task(spec: Evaluate, loaded: Loaded) -> Any:
    """The task that is asked of the model."""
    given = describe_model(loaded, spec.plugins)
    return build(choose_task(spec, loaded), given, spec.plugins, path="task")


def measure(spec: Evaluate, loaded: Loaded, task: Any, precision: Precision) -> ScoreTable | None:
    """The scores of a task that asks the model in a way of its own; None for one that reads
    examples of a split.
    """
    asked = (spec, loaded, task, precision)
    if isinstance(task, LanguageModel):
        return _measure_text(*asked)
    if isinstance(task, ClassifiedLinks):
        given = describe_model(loaded, spec.plugins)
        return rank_classified(spec, TripleClassifier(*asked, given))
    if isinstance(task, HeldOut):
        extra = {"checkpoint": str(loaded.source.folder)}
        return ScoreTable("held-out rows", score_held_out(*asked), extra)
    ways: tuple[tuple[type, Callable[..., ScoreTable]], ...] = (
        (ContextLength, compare_contexts),
        (WordSimilarity, compare_words),
        (WordAnalogies, refuse_analogies),
        (SentenceSimilarity, compare_sentences),
        (RankingTask, rank_corpus),
        (DescribedLinks, rank_described),
        (WNLaMPro, probe_words),
        (FactCompletion, complete_facts),
    )
    way = next((way for kind, way in ways if isinstance(task, kind)), None)
    return None if way is None else way(*asked)


def _write_submission(spec: Evaluate, loaded: Loaded, task: Task, precision: Precision) -> None:
    """Write the file of a leader board for every split that is there."""
    out = choose_out(spec, loaded)
    files = {split: name for split, name in task.submission.items() if task.has(split)}
    if not files:
        wanted = ", ".join(task.submission) or "none: this task has no leader board"
        raise UsageError(
            f"--submission: no split of {task.name} in {task.path} can be submitted ({wanted})"
        )
    for name in files.values():
        submission_file(out, name)
    for split, name in files.items():
        rows = inference.encode_split(task, split, task.read(split), loaded.tokenizer)
        predictions, _ = predict_split(spec, loaded, task, rows, precision)
        predictions, _ = decide_again(loaded, task, predictions, precision.digits)
        content = task.submit(predictions, name)
        tell(write_for_board(out, name, content, overwrite=spec.overwrite))


def _measure_text(
    spec: Evaluate, loaded: Loaded, task: LanguageModel, precision: Precision
) -> ScoreTable:
    """The perplexity of a text."""
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
    extra: dict[str, Any] = {"checkpoint": str(loaded.source.folder), "text": str(path)}
    if share:
        extra["unknown"] = Told(unknown.describe_unknown(share), share)
    return ScoreTable("language model", {"text": scores}, extra)
