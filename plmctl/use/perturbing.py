"""`plmctl eval perturb=[...]`: the scores of a split whose texts are changed, beside those of the
texts as they stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from plmctl.artifacts.loading import Loaded
from plmctl.attack.perturbations import Perturbation
from plmctl.config.build import build
from plmctl.config.spec import thaw
from plmctl.config.uses import Evaluate
from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError
from plmctl.tasks import inference
from plmctl.tasks.calibration import measure_calibration
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task, as_task
from plmctl.training.device.precision import Precision
from plmctl.use.calibrating import decide_again
from plmctl.use.predict import Told, predict

TEXTS = ("text", "text2")  # fields of an example that are changed
ERROR, DIFFERENCE = "calibration error", "difference"


def build_perturbations(spec: Evaluate) -> dict[str, Perturbation]:
    """The parts of `perturb`, by their names."""
    return {
        name: build(node, {}, spec.plugins, path=f"perturb.{name}")
        for name, node in (thaw(spec.perturb) or {}).items()
    }


def score_perturbed(
    spec: Evaluate,
    loaded: Loaded,
    task: Task,
    precision: Precision,
    name: str,
    examples: Sequence[Example],
    before: tuple[Sequence[dict[str, Any]], Mapping[str, float]],
) -> tuple[dict[str, dict[str, float]], dict[str, Told]]:
    """({split: scores, perturbation: scores}, each with the difference of the first metric to that
    of the split, and the calibration error where there are probabilities; {perturbation: what is
    to be said of one that changes nothing}).

    Args:
        before: predictions and scores of the examples as they stand.
    """
    predictions, metrics = before
    table = {name: {**metrics, **_measure_error(predictions)}}
    own_rows, remarks = task.encode(examples, loaded.tokenizer), dict[str, Told]()
    for kind, perturbation in build_perturbations(spec).items():
        changed = [_change(example, perturbation) for example in examples]
        split = inference.Split(kind, changed, task.encode(changed, loaded.tokenizer))
        if not any(_differ(*pair) for pair in zip(examples, changed, strict=True)):
            remarks[kind] = Told(f"changes no text of {name}: its column is that of {name}")
        elif _read_alike(own_rows, split.rows):
            remarks[kind] = Told("changes texts, and no token of them that the model reads")
        size, digits = spec.batch_size, precision.digits
        how: dict[str, Any] = {"precision": precision, "batch_size": size, "digits": digits}
        predictions, own = predict(loaded.model, task, split, **how)
        predictions, decision = decide_again(loaded, task, predictions, digits)
        own = {**own, **task.score(predictions)} if decision else own
        first = task.metrics[0]
        table[kind] = {
            **own,
            **_measure_error(predictions),
            DIFFERENCE: own[first] - metrics[first],
        }
    return table, remarks


def refuse_perturbed(spec: Evaluate, task: Any = None) -> None:
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


def check_perturbed(spec: Evaluate, examples: Sequence[Example]) -> None:
    """Raise for examples without labels, before anything is computed."""
    if any(example.label is None for example in examples):
        allowed = "null: without labels there is no score"
        raise ConfigError("perturb", list(spec.perturb or ()), allowed, fix="split=dev")
    build_perturbations(spec)


def _change(example: Example, perturbation: Perturbation) -> Example:
    changed = {
        name: perturbation(value)
        for name, value in example.fields.items()
        if name in TEXTS and isinstance(value, str)
    }
    return replace(example, fields={**example.fields, **changed})


def _differ(before: Example, after: Example) -> bool:
    return any(before.fields.get(name) != after.fields.get(name) for name in TEXTS)


def _read_alike(before: Rows, after: Rows) -> bool:
    """Whether the tokens of all rows are the same."""
    return before.seqs.keys() == after.seqs.keys() and all(
        np.array_equal(seq.ids[:], after.seqs[name].ids[:]) for name, seq in before.seqs.items()
    )


def _measure_error(predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    if not isinstance(predictions[0].get("probabilities"), Mapping):
        return {}
    return {ERROR: measure_calibration(predictions)[0]}
