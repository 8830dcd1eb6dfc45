"""The scores of a fine-tuned run, next to those of models without pretraining on the same split."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.analysis.paired import find_tests
from plmctl.analysis.runs import read_baselines, read_rows
from plmctl.analysis.scored import find_tested
from plmctl.artifacts.loading import Source
from plmctl.config.build import build
from plmctl.core.errors import PlmctlError
from plmctl.core.rounding import round_floats
from plmctl.storage.atomic import write_json
from plmctl.storage.reading import read_json
from plmctl.tasks.baselines import Baselines, score_baselines
from plmctl.tasks.linear_model import is_linear, load_linear
from plmctl.tasks.predictions import predictions_file, write_predictions
from plmctl.tasks.record import Example
from plmctl.tasks.scores.below import FILE as BASELINES
from plmctl.tasks.scores.below import UNBEATEN, folder_of, list_unbeaten
from plmctl.tasks.task import Task
from plmctl.tasks.trained_texts import hash_texts, read_trained
from plmctl.use.answering import AnsweredSplit
from plmctl.use.asked_task import describe_model
from plmctl.use.predict import Told

TEST = "test"


def compare_simple(
    source: Source, task: Task, answered: AnsweredSplit, kept: Path, *, own: bool
) -> dict[str, Told]:
    """The scores that are no better than those without pretraining. Rows of other files
    have those of the fitted ones.

    Args:
        answered: The predictions of a split.
        kept: Their file. Models without pretraining are scored on those of the run's test, which
            their fine-tuning has not read.
        own: Whether the split is the run's own.
    """
    run, split = source.run, answered.name
    if run is None or not (run / BASELINES).is_file() or not task.metrics:
        return {}
    if kept == find_tested(run):
        split, simple = TEST, _score_test(run, source, task, answered.examples)
    else:
        known = own and _has_examples(run, split, len(answered.predictions))
        simple = {name: own for name, own in read_baselines(run).items() if known and name == split}
    first, lower = task.metrics[0], task.directions.lower
    tests = find_simple_tests(run, {name: answered.predictions for name in simple}, task)
    if not own and not simple:
        simple, tests = _ask_linear(run, task, answered)
    scores = {split: answered.metrics}
    lines = list_unbeaten(scores, simple, first, lower=lower, tests=tests)
    return {UNBEATEN: Told("; ".join(lines), len(lines))} if lines else {}


def write_baselines(run: Path, baselines: Baselines, config: Mapping[str, Any]) -> None:
    """The scores and predictions of models without pretraining, and the linear ones themselves, as
    files of a run with this config.
    """
    if baselines.scores:
        write_json(run / BASELINES, round_floats(baselines.scores))
    for split, others in baselines.predictions.items():
        for name, rows in others.items():
            write_predictions(folder_of(run, name), split, rows)
    for name, model in baselines.linear.items():
        model.save(folder_of(run, name), config)


def _score_test(
    run: Path, source: Source, task: Task, examples: Sequence[Example]
) -> dict[str, Any]:
    """The scores on test of models without pretraining, which the run keeps; {} where the examples
    of its training cannot be read anymore.
    """
    plugins, found = source.plugins, Baselines()
    with contextlib.suppress(PlmctlError):
        own = build(source.own_task(), describe_model(source, plugins), plugins, path="task")
        train, trained = own.read("train"), read_trained(run)
        same = trained is not None and np.array_equal(trained, np.unique(hash_texts(train)))
        if same and own.name == task.name:
            found = score_baselines(task, train, {TEST: examples})
    others = {split: scores for split, scores in read_baselines(run).items() if split != TEST}
    write_baselines(run, replace(found, scores={**others, **found.scores}), source.config)
    return {**found.scores}


def _ask_linear(
    run: Path, task: Task, answered: AnsweredSplit
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """({split: {linear model of the run: its scores}}, {split: {model: its test}}) on the rows of
    another file; both are empty without labels, and where the model has other ones.
    """
    names = dict.fromkeys(name for own in read_baselines(run).values() for name in own)
    folders = {name: folder_of(run, name) for name in names} if answered.metrics else {}
    models = {name: load_linear(own)[0] for name, own in folders.items() if is_linear(own)}
    known = {*(task.label_names or ())}
    asked = {n: own for n, own in models.items() if not known or {*own.names} <= known}
    if not asked:
        return {}, {}
    rows = {name: model.answer(task, answered.examples) for name, model in asked.items()}
    signatures = task.signatures  # those of the model's own scores
    scores = {name: task.score(own) for name, own in rows.items()}
    tests = find_tests(answered.predictions, rows, task.score, task.metrics[0])
    task.signatures = signatures
    return {answered.name: scores}, {answered.name: tests}


def find_simple_tests(
    run: Path, predictions: Mapping[str, Sequence[dict[str, Any]]], task: Task
) -> dict[str, dict[str, Any]]:
    """{split: {model without pretraining: test of the difference to these predictions}}; older runs
    have no predictions of such models.
    """
    known, found = read_baselines(run), {}
    for split in (name for name in predictions if name in known):
        files = {name: predictions_file(folder_of(run, name), split) for name in known[split]}
        others = {name: read_rows(file) for name, file in files.items() if file.is_file()}
        found[split] = find_tests(predictions[split], others, task.score, task.metrics[0])
    return found


def _has_examples(run: Path, split: str, count: int) -> bool:
    """Whether the scores of the run are of as many examples."""
    result = run / "result.json"
    known = read_json(result).get("examples") or {} if result.is_file() else {}
    return bool(known.get(split) == count)
