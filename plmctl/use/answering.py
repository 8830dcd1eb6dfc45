"""What a fine-tuned checkpoint answers to the examples of a split, or to new texts, with scores
where there are labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plmctl.artifacts.loading import Loaded
from plmctl.config.uses import Evaluate
from plmctl.tasks import inference
from plmctl.tasks.intervals import find_intervals
from plmctl.tasks.predictions import beside
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.text import unknown
from plmctl.training.device.precision import Precision
from plmctl.use.asked_task import read_examples
from plmctl.use.calibrating import (
    calibrate,
    decide_again,
    describe_calibration,
    describe_loss,
    warn_of_fit,
)
from plmctl.use.predict import ScoreTable, Told, predict

Predictions = list[dict[str, Any]]


@dataclass(frozen=True)
class AnsweredSplit:
    """The predictions of one split, or of texts, and their metrics."""

    name: str
    examples: Sequence[Example]
    predictions: Predictions
    metrics: Mapping[str, float]  # empty where nothing is labelled
    remarks: Mapping[str, Any]  # on what was read, by what they are about

    def rows(self, source: str | None) -> Predictions:
        """Each prediction behind the columns of its example in the file `source`, or its texts."""
        return beside(source, self.examples, self.predictions)

    def tabulate(self, task: Task, extra: Mapping[str, Any], *, seed: int) -> ScoreTable:
        """The metrics with their intervals, and the remarks behind `extra`."""
        scores = {self.name: self.metrics} if self.metrics else {}
        intervals = {}
        if scores:
            intervals = {self.name: find_intervals(task, self.predictions, seed=seed)}
        title, said = f"{task.name}: {self.name}", {**extra, **self.remarks}
        return ScoreTable(title, scores, said, intervals, {self.name: len(self.predictions)})


def answer_split(
    spec: Evaluate, loaded: Loaded, task: Task, precision: Precision, *, whole: str = ""
) -> AnsweredSplit:
    """The answers to the split that is asked for, or to the texts of `input`.

    `whole`: a remark on files of which no part is held out.
    """
    name, examples = read_examples(spec, task)
    return answer_examples(spec, loaded, task, name, examples, precision, whole=whole)


def answer_examples(
    spec: Evaluate,
    loaded: Loaded,
    task: Task,
    name: str,
    examples: list[Example],
    precision: Precision,
    *,
    whole: str = "",
) -> AnsweredSplit:
    """The answers to examples, as what was fitted to the checkpoint decides; `calibrate` fits it
    before.
    """
    split = inference.encode_split(task, name, examples, loaded.tokenizer)
    read = inference.ReadPieces()
    read.add(examples, split.rows, loaded.vocab)
    before, metrics = predict_split(spec, loaded, task, split, precision)
    if spec.calibrate:
        calibrate(spec, loaded, task, name, before)
    predictions, decision = decide_again(loaded, task, before, precision.digits)
    if spec.calibrate:
        warn_of_fit(before, predictions, task.metrics[0])
    changed = bool(decision and metrics)
    if changed:
        metrics = {**metrics, **task.score(predictions)}
    remarks = {
        **describe_read(read, task),
        "scored": Told(task.describe_scoring(examples)),
        "split": Told(whole if spec.input is None else ""),
        "decision": Told(decision),
        "loss": Told("loss of the answers without the decision" if changed else ""),
    }
    if changed or spec.calibrate:
        remarks["log loss"] = describe_loss(before, predictions)
    if changed and (error := describe_calibration(before, predictions)):
        remarks["calibration error"] = error
    scored = spec.input is None or inference.is_answered(examples)
    said: dict[str, Any] = keep_said(remarks)
    said |= {"signatures": task.signatures} if task.signatures else {}
    return AnsweredSplit(name, examples, predictions, metrics if scored else {}, said)


def describe_read(read: inference.ReadPieces, task: Task) -> dict[str, Told]:
    """What is to be said of the texts that were read, by what it is about, or ""."""
    share = read.unknown_share
    return {
        "empty": Told(read.describe_empty(), read.empty),
        "cut": Told(inference.spell_truncation(read.cut), read.cut["any"]),
        "unknown": Told(unknown.describe_unknown(share), share),
        "read": Told("; ".join(inference.describe_reading(task.reader))),
        "files": Told("; ".join(task.remarks)),
    }


def keep_said(remarks: Mapping[str, Told]) -> dict[str, Told]:
    """Those that say something."""
    return {key: remark for key, remark in remarks.items() if remark.text}


def predict_split(
    spec: Evaluate, loaded: Loaded, task: Task, split: inference.Split, precision: Precision
) -> tuple[Predictions, dict[str, float]]:
    """The predictions of one split, and its metrics, in the precision that was asked for."""
    size, digits = spec.batch_size, precision.digits
    return predict(loaded.model, task, split, precision=precision, batch_size=size, digits=digits)
