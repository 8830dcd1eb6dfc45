"""`plmctl eval perturb=[...]`: the scores of a split whose texts are changed, next to those of the
original texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from plmctl.artifacts.loading import Loaded
from plmctl.attack.perturbations import Perturbation
from plmctl.core.batch import Rows
from plmctl.runtime.base import Runtime
from plmctl.tasks import inference
from plmctl.tasks.calibration import measure_calibration
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.training.device.precision import Precision
from plmctl.use.answering import AnsweredSplit
from plmctl.use.calibrating import decide_again
from plmctl.use.predict import Told, predict

TEXTS = ("text", "text2")  # fields of an example that are changed
ERROR, DIFFERENCE = "calibration error", "difference"


def score_perturbed(
    perturbations: Mapping[str, Perturbation],
    loaded: Loaded,
    task: Task,
    answered: AnsweredSplit,
    *,
    precision: Precision,
    batch_size: int,
    runtime: Runtime | None = None,
) -> tuple[dict[str, dict[str, float]], dict[str, Told], dict[str, list[dict[str, Any]]]]:
    """Three mappings. {split: scores, perturbation: scores}, each with the difference of the first
    metric to that of the split, and the calibration error where there are probabilities.
    {perturbation: a remark on one that changes nothing}. {perturbation: its texts with answers}.

    Args:
        answered: The examples as they stand, with their predictions and scores.
        precision: The device, and the number type of the computation.
        runtime: The library of the computation; None: PyTorch.
    """
    name, examples = answered.name, answered.examples
    predictions, metrics = answered.predictions, answered.metrics
    table = {name: {**metrics, **_measure_error(predictions)}}
    own_rows, remarks = task.encode(examples, loaded.tokenizer), dict[str, Told]()
    answers = dict[str, list[dict[str, Any]]]()
    for kind, perturbation in perturbations.items():
        changed = [_change(example, perturbation) for example in examples]
        split = inference.Split(kind, changed, task.encode(changed, loaded.tokenizer))
        if not any(_differ(*pair) for pair in zip(examples, changed, strict=True)):
            remarks[kind] = Told(f"changes no text of {name}: its column is that of {name}")
        elif _read_alike(own_rows, split.rows):
            remarks[kind] = Told("changes texts, and no token of them that the model reads")
        digits = precision.digits
        how: dict[str, Any] = {"precision": precision, "batch_size": batch_size, "digits": digits}
        how["runtime"] = runtime
        predictions, own = predict(loaded.model, task, split, **how)
        predictions, decision = decide_again(loaded, task, predictions, digits)
        own = {**own, **task.score(predictions)} if decision else own
        answers[kind] = [
            {name: each.fields[name] for name in TEXTS if name in each.fields} | answer
            for each, answer in zip(changed, predictions, strict=True)
        ]
        first = task.metrics[0]
        table[kind] = {
            **own,
            **_measure_error(predictions),
            DIFFERENCE: own[first] - metrics[first],
        }
    return table, remarks, answers


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
