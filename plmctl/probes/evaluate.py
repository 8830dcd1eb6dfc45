"""`plmctl eval`: score a checkpoint on a split, label new lines, write a submission, or measure
perplexity.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.artifacts.loading import Loaded, load_for
from plmctl.config.build import build, plain
from plmctl.config.uses import Evaluate
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.parts import declared
from plmctl.core.rounding import round_floats
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import tell
from plmctl.knowledge.vector_files import find_static
from plmctl.knowledge.vectors import find_vectors
from plmctl.probes.base import Opened, VectorProbe
from plmctl.probes.by_task import evaluate_by_task
from plmctl.probes.graph_evaluation import evaluate_vectors
from plmctl.probes.ranking import rank_corpus
from plmctl.runtime.base import Runtime
from plmctl.runtime.eager import EagerRuntime
from plmctl.storage.reading import read_json
from plmctl.tasks import inference
from plmctl.tasks.calibration import join_decisions
from plmctl.tasks.ensemble import join
from plmctl.tasks.predictions import NAMED, STDOUT, submission_file
from plmctl.tasks.record import Example
from plmctl.tasks.scores.below import FILE as BASELINES
from plmctl.tasks.scores.below import list_below
from plmctl.tasks.task import Task, as_task
from plmctl.text.tabular import kind_of
from plmctl.training.device.precision import Precision, choose
from plmctl.training.processes.world import device_of
from plmctl.use.answering import AnsweredSplit, answer_examples, keep_said
from plmctl.use.asked_task import (
    Destination,
    ask_all,
    check_out,
    choose_out,
    is_printed,
    name_file,
    open_task,
    read_examples,
    write_for_board,
    write_split,
)
from plmctl.use.calibrating import decide_again
from plmctl.use.ensemble import Member, ask_members, name_members
from plmctl.use.labelling import label_texts
from plmctl.use.perturbing import score_perturbed
from plmctl.use.predict import ScoreTable, Told, predict


def evaluate(spec: Evaluate) -> int:
    """Score the checkpoint, and show or write the results."""
    if spec.by is not None or (not isinstance(spec.checkpoint, str) and len(spec.checkpoint) > 1):
        _refuse_perturbed(spec)
    if spec.by is not None:
        _refuse_runtime(spec, "several tasks share one backbone in PyTorch")
        return _answer_by_task(spec)
    if not isinstance(spec.checkpoint, str):
        if len(spec.checkpoint) > 1:
            return _evaluate_together(spec)
        spec = replace(spec, checkpoint=spec.checkpoint[0])
    if vectors := find_vectors(str(spec.checkpoint)):
        _refuse_runtime(spec, "vectors need no other library")
        table: ScoreTable | None = _rank_links(spec, vectors)
    elif static := find_static(str(spec.checkpoint)):
        _refuse_runtime(spec, "vectors need no other library")
        table = _measure_vectors(spec, static)
    else:
        table = _evaluate_model(spec)
    if table is not None:
        _show(table, spec)
    return 0


def _answer_by_task(spec: Evaluate) -> int:
    """Answer the rows of a table, each by its own checkpoint; ConfigError for settings that exclude
    `by`.
    """
    by, file = str(spec.by), Path(spec.input or "-")
    if isinstance(spec.checkpoint, str) or len(spec.checkpoint) < 2:
        allowed = "null: one checkpoint answers all rows"
        raise ConfigError("by", by, allowed, fix="checkpoint=[<a run>,<another>]")
    if spec.task is not None:
        allowed = "null: each checkpoint has a task of its own"
        raise ConfigError("task", spec.task.get("name"), allowed, fix="leave it out")
    if kind_of(file) not in NAMED:
        allowed = f"a table with names of columns ({', '.join(NAMED)}), of which by={by} is one"
        raise ConfigError("input", spec.input, allowed, fix="input=mixed.csv")
    if spec.out is not None:
        check_out(Path(spec.out), spec.overwrite)
    table = evaluate_by_task(
        spec.checkpoint,
        file,
        by,
        output=Destination(
            Path(spec.out or _join_names(spec.checkpoint)), spec.overwrite, spec.guard_cells
        ),
        precision=choose(spec.precision, device_of(spec.device, "device")),
        batch_size=spec.batch_size,
        plugins=spec.plugins,
    )
    _show(table, spec)
    return 0


def _join_names(checkpoints: Sequence[str]) -> Path:
    """The folder of the answers of several checkpoints."""
    names = name_members(checkpoints)
    return Path("eval") / "+".join(name.replace(os.sep, "-") for name in names)


def _show(table: ScoreTable, spec: Evaluate) -> None:
    """Print a table, on standard error if predictions take standard output."""
    printed = is_printed(spec.out, spec.input, submission=spec.provenance.submission)
    table.show(as_json=spec.provenance.json, aside=printed)


def _measure_vectors(spec: Evaluate, file: Path) -> ScoreTable:
    """The scores of a file of word vectors."""
    part = None if spec.task is None else build(spec.task, {}, spec.plugins, path="task")
    if isinstance(part, VectorProbe):
        return part.measure_vectors(file)
    given = ... if spec.task is None else spec.task.get("name", "...")
    allowed = "word_similarity or word_analogies: these are vectors of words, and no model"
    raise ConfigError("task", given, allowed, fix="task=word_similarity task.path=<lists>")


def _rank_links(spec: Evaluate, folder: Path) -> ScoreTable:
    """The scores of vectors of a graph; ConfigError for a task."""
    if spec.task is not None:
        allowed = "null: vectors of a graph predict its links, and no other task"
        name = plain(spec.task).get("name", "...")
        raise ConfigError("task", name, allowed, fix="leave it out")
    return evaluate_vectors(
        folder,
        spec.split,
        path=spec.data.path,
        out=None if spec.out is None else Destination(Path(spec.out), spec.overwrite),
        device=device_of(spec.device, "device"),
        batch_size=spec.batch_size,
        plugins=spec.plugins,
    )


def _evaluate_model(spec: Evaluate) -> ScoreTable | None:
    """Write the results of a model, and return its scores; None for a submission."""
    if spec.out is not None:
        check_out(Path(spec.out), spec.overwrite, submission=spec.provenance.submission)
    loaded, precision = load_for(str(spec.checkpoint), spec.device, spec.precision, spec.plugins)
    keys = spec.provenance.keys
    task = open_task(loaded, spec.task, keys, checkpoint=spec.checkpoint)
    _refuse_perturbed(spec, task)
    runtime = open_runtime(spec.runtime, precision, spec.plugins)
    own = as_task(task)
    if not runtime.on_gpu and (own is None or own.facts.ranks):
        _refuse_runtime(spec, f"task={spec.task.get('name')} asks the model in several ways")
    if (table := measure(Opened(loaded, precision, spec), task)) is not None:
        return table
    whole = ask_all(task, loaded, keys, split=spec.split, checkpoint=spec.checkpoint)
    out = choose_out(loaded, spec.out, spec.input, submission=spec.provenance.submission)
    output = Destination(out, spec.overwrite, spec.guard_cells)
    how: Any = {"precision": precision, "batch_size": spec.batch_size, "runtime": runtime}
    if spec.provenance.submission:
        _write_submission(output, loaded, task, **how)
        return None
    if spec.input is not None and not (spec.perturb or spec.calibrate):
        return label_texts(loaded, task, spec.input, output, seed=spec.seed, **how)
    name, examples = read_examples(task, spec.split, spec.input)
    about: Any = {"new_texts": spec.input is not None, "calibrated": spec.calibrate, "whole": whole}
    answered = answer_examples(loaded, task, name, examples, **about, **how)
    file = write_split(output, name, examples, answered.predictions, spec.input)
    extra = {
        "task": task.name,
        "checkpoint": str(loaded.source.folder),
        "rows": len(answered.predictions),
        "predictions": name_file(file),
    }
    extra |= keep_said({"runtime": Told(runtime.describe())})
    shown = answered.tabulate(task, extra | _compare_simple(loaded, task, answered), seed=spec.seed)
    if not spec.perturb:
        return shown
    if any(example.label is None for example in examples):
        allowed = "null: without labels there is no score"
        raise ConfigError("perturb", list(spec.perturb), allowed, fix="split=dev")
    perturbations = {
        kind: build(node, {}, spec.plugins, path=f"perturb.{kind}")
        for kind, node in spec.perturb.items()
    }
    scores, remarks = score_perturbed(perturbations, loaded, task, answered, **how)
    return replace(shown, metrics=scores, extra={**shown.extra, **remarks})


def _evaluate_together(spec: Evaluate) -> int:
    """Score the members and their ensemble, and write its predictions or submission."""
    if spec.out is not None:
        check_out(Path(spec.out), spec.overwrite, submission=spec.provenance.submission)
    if spec.calibrate:
        allowed = "of one checkpoint, in which it is kept"
        fix = spell_setting("checkpoint", spec.checkpoint[0])
        raise ConfigError("calibrate", list(spec.calibrate), allowed, fix=fix)
    printed = is_printed(spec.out, spec.input, submission=spec.provenance.submission)
    out = STDOUT if printed else Path(spec.out or _join_names(spec.checkpoint))
    output = Destination(out, spec.overwrite, spec.guard_cells)
    splits: dict[str, list[Example]] = {}
    members = list(_ask(spec, splits))
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
            tell(write_for_board(output, board, content))
        return 0
    ((name, examples),) = splits.items()
    file = write_split(output, name, examples, joined[name], spec.input)
    scores = {}
    if inference.is_answered(examples):
        scores = {each.name: each.task.score(each.answers[name]) for each in members}
        scores[f"{spec.joined} of {len(members)}"] = task.score(joined[name])
    extra: dict[str, Any] = {"task": task.name, "rows": len(examples)}
    extra["predictions"] = name_file(file)
    if decision is not None:
        extra["decision"] = Told(f"the mean of {len(members)} models: {decision.describe()}")
    _show(ScoreTable(f"{task.name}: {name}", scores, extra), spec)
    return 0


def _ask(spec: Evaluate, splits: dict[str, list[Example]]) -> Iterator[Member]:
    """The answers of several checkpoints."""
    keys = spec.provenance.keys

    def open_member(loaded: Loaded, checkpoint: str) -> Task:
        task = as_task(open_task(loaded, spec.task, keys, checkpoint=checkpoint))
        if task is None:
            allowed = "a task with labels: an ensemble is of fine-tuned models"
            fix = spell_setting("checkpoint", checkpoint)
            raise ConfigError("task", spec.task.get("name"), allowed, fix=fix)
        ask_all(task, loaded, keys, split=spec.split, checkpoint=checkpoint)
        return task

    def read(task: Task) -> dict[str, list[Example]]:
        if not spec.provenance.submission:
            return dict([read_examples(task, spec.split, spec.input)])
        if found := {
            split: task.read(split) for split in task.submission if task.splits.has(split)
        }:
            return found
        raise UsageError(f"--submission: {task.name} has no leader board, or no file of it")

    precision = choose(spec.precision, device_of(spec.device, "device"))
    return ask_members(
        spec.checkpoint,
        open_member,
        read,
        splits,
        precision=precision,
        batch_size=spec.batch_size,
        plugins=spec.plugins,
        runtime=open_runtime(spec.runtime, precision, spec.plugins),
    )


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


def _refuse_runtime(spec: Evaluate, why: str) -> None:
    """ConfigError for another runtime than PyTorch."""
    if not _build_runtime(spec.runtime, spec.plugins).on_gpu:
        name = plain(spec.runtime)["_target_"].rpartition(".")[2]
        raise ConfigError("runtime", name, f"torch: {why}", fix="runtime=torch")


def _build_runtime(node: Any, plugins: Sequence[str]) -> Runtime:
    """The runtime that the settings name; without one, PyTorch."""
    return EagerRuntime() if node is None else build(node, {}, plugins, path="runtime")


def open_runtime(node: Any, precision: Precision, plugins: Sequence[str]) -> Runtime:
    """The runtime that the settings name; ConfigError where it cannot compute like this."""
    runtime = _build_runtime(node, plugins)
    if not runtime.on_gpu and precision.device.type != "cpu":
        raise ConfigError("device", "cuda", "cpu: this runtime computes there", fix="device=cpu")
    if not runtime.on_gpu and precision.name != "fp32":
        allowed = "fp32: other numbers are of runtime=torch"
        raise ConfigError("precision", precision.name, allowed, fix="precision=fp32")
    return runtime


def measure(opened: Opened, part: Any) -> ScoreTable | None:
    """The scores of a probe, or of a task that ranks a whole corpus; None for a task that reads the
    examples of a split.
    """
    if declared(type(part)) == "probe":
        scores: ScoreTable = part.measure(opened)
        return scores
    return rank_corpus(opened, part) if part.facts.ranks else None


def _refuse_perturbed(spec: Evaluate, task: Any = None) -> None:
    """ConfigError for several checkpoints, a leader board, or a task that scores no texts of a
    table.
    """
    columns = known.columns if (known := as_task(task)) else {}
    why = ""
    if task is None:
        why = "several checkpoints or tasks are scored on the texts as they stand"
    elif spec.provenance.submission:
        why = "a leader board asks for the texts as they stand"
    elif columns.get("text") is None:
        why = "this task has no column with texts"
    if spec.perturb and why:
        raise ConfigError("perturb", list(spec.perturb), f"null: {why}", fix="perturb=null")


def _write_submission(
    output: Destination,
    loaded: Loaded,
    task: Task,
    *,
    precision: Precision,
    batch_size: int,
    runtime: Runtime,
) -> None:
    """Write the file of a leader board for every split that exists."""
    files = {split: name for split, name in task.submission.items() if task.splits.has(split)}
    if not files:
        wanted = ", ".join(task.submission) or "none: this task has no leader board"
        raise UsageError(
            f"--submission: no split of {task.name} in {task.path} can be submitted ({wanted})"
        )
    for name in files.values():
        submission_file(output.path, name)
    for split, name in files.items():
        rows = inference.encode_split(task, split, task.read(split), loaded.tokenizer)
        how: Any = {"precision": precision, "digits": precision.digits, "runtime": runtime}
        predictions, _ = predict(loaded.model, task, rows, batch_size=batch_size, **how)
        predictions, _ = decide_again(loaded, task, predictions, precision.digits)
        content = task.submit(predictions, name)
        tell(write_for_board(output, name, content))
