"""`plmctl eval`: score a checkpoint on a split, label new lines, write a submission, or measure
perplexity.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.artifacts.loading import Loaded, load_for
from plmctl.config.build import build, plain
from plmctl.config.uses import Evaluate
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.parts import declared
from plmctl.core.terminal import tell
from plmctl.knowledge.vector_files import find_static
from plmctl.knowledge.vectors import find_vectors
from plmctl.probes.base import Opened, VectorProbe
from plmctl.probes.by_task import evaluate_by_task
from plmctl.probes.graph_evaluation import evaluate_vectors
from plmctl.probes.ranking import rank_corpus
from plmctl.storage.reading import read_json
from plmctl.tasks import inference
from plmctl.tasks.predictions import submission_file
from plmctl.tasks.scores.below import FILE as BASELINES
from plmctl.tasks.scores.below import list_below
from plmctl.tasks.task import Task
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
    write_for_board,
    write_split,
)
from plmctl.use.calibrating import decide_again
from plmctl.use.ensemble import evaluate_together
from plmctl.use.labelling import label_texts
from plmctl.use.perturbing import check_perturbed, refuse_perturbed, score_perturbed
from plmctl.use.predict import ScoreTable, Told


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
        table = _measure_vectors(spec, static)
    else:
        table = _evaluate_model(spec)
    if table is not None:
        table.show(
            as_json=spec.provenance.json,
            aside=is_printed(spec.out, spec.input, submission=spec.provenance.submission),
        )
    return 0


def _measure_vectors(spec: Evaluate, file: Path) -> ScoreTable:
    """The scores of a file of word vectors."""
    part = None if spec.task is None else build(spec.task, {}, spec.plugins, path="task")
    if isinstance(part, VectorProbe):
        return part.measure_vectors(file)
    given = ... if spec.task is None else spec.task.get("name", "...")
    allowed = "word_similarity or word_analogies: these are vectors of words, and no model"
    raise ConfigError("task", given, allowed, fix="task=word_similarity task.path=<lists>")


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
    loaded, precision = load_for(str(spec.checkpoint), spec.device, spec.precision, spec.plugins)
    task = make_task(spec, loaded)
    refuse_perturbed(spec, task)
    if (table := measure(Opened(loaded, precision, spec), task)) is not None:
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
    return build(
        choose_task(loaded, spec.task, spec.provenance.keys, checkpoint=spec.checkpoint),
        given,
        spec.plugins,
        path="task",
    )


def measure(opened: Opened, part: Any) -> ScoreTable | None:
    """The scores of a probe, or of a task that ranks a whole corpus; None for a task that reads the
    examples of a split.
    """
    if declared(type(part)) == "probe":
        scores: ScoreTable = part.measure(opened)
        return scores
    return rank_corpus(opened, part) if part.ranks else None


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
