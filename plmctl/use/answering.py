"""The answers of a fine-tuned checkpoint to the examples of a split, or to new texts, with scores
where there are labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.artifacts.kept_decision import read_decision
from plmctl.artifacts.loading import Loaded, Source
from plmctl.core.rounding import DIGITS
from plmctl.core.terminal import WARN, remark
from plmctl.runtime.base import Runtime
from plmctl.tasks import inference
from plmctl.tasks.calibration import (
    SURE,
    TEMPERATURE,
    THRESHOLD,
    LabelDecision,
    describe_answered,
    measure_answered,
)
from plmctl.tasks.fitted_rows import FittedRows
from plmctl.tasks.intervals import describe_scores, find_intervals
from plmctl.tasks.predictions import beside
from plmctl.tasks.record import Example
from plmctl.tasks.scores.base import join_meanings
from plmctl.tasks.task import Task
from plmctl.tasks.trained_texts import (
    count_trained,
    describe_known_bundles,
    describe_trained,
    find_known_bundles,
    hash_texts,
    read_trained,
    read_trained_forms,
)
from plmctl.training.device.precision import Precision
from plmctl.use.calibrating import (
    calibrate,
    decide,
    describe_calibration,
    describe_loss,
    warn_of_fit,
)
from plmctl.use.predict import ScoreTable, Told, predict

Predictions = list[dict[str, Any]]
OTHERS = "the accuracy of others is often lower"
# {part of a decision that was fitted to the scored rows: (topic, what is better on these)}
REFITTED = {
    SURE: ("chosen", f"the bound of unsure was chosen on these rows: {OTHERS}"),
    THRESHOLD: ("threshold", "it was chosen on these rows: {metrics} of others are often worse"),
}
TEMPERED = "; the temperature was fitted on these rows: that of others is often larger"
UNCHANGED = "loss of the answers without the decision"


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
        intervals, about = {}, dict[str, Told]()
        if scores:
            lines = describe_scores(task, self.predictions)
            lines |= {"metrics": meant} if (meant := join_meanings(task.meanings)) else {}
            about = {key: Told(line) for key, line in lines.items()}
            intervals = {self.name: find_intervals(task, self.predictions, seed=seed)}
        title, said = f"{task.name}: {self.name}", {**extra, **about, **self.remarks}
        counts = {self.name: len(self.predictions)}
        return ScoreTable(title, scores, said, intervals, counts, task.is_percent)


def answer_examples(
    loaded: Loaded,
    task: Task,
    name: str,
    examples: list[Example],
    precision: Precision,
    *,
    batch_size: int,
    new_texts: bool = False,
    calibrated: Sequence[str] = (),
    abstain: float | None = None,
    whole: str = "",
    runtime: Runtime | None = None,
    decision: LabelDecision | None = None,
) -> AnsweredSplit:
    """The answers to examples, as what was fitted to the checkpoint decides.

    Args:
        name: The name of the split, or of the texts.
        precision: The device, and the number type of the computation.
        new_texts: Whether they are texts of a file, which may have no labels.
        calibrated: Decisions to fit to these examples before: "temperature".
        abstain: The accuracy for which the least probability of an answer is fitted, too.
        whole: A remark on files of which no part is held out.
        runtime: The library of the computation; None: PyTorch.
        decision: The decision on the answers; None: as in the checkpoint.
    """
    inference.admit(task, examples)
    split = inference.encode_piece(task, name, examples, loaded.tokenizer)
    read = inference.ReadPieces()
    unread = read.add(examples, split.rows, loaded.tokenizer)
    read.refuse_unknown(name)
    given: dict[str, Any] = {"precision": precision, "digits": precision.digits, "runtime": runtime}
    before, metrics = predict(loaded.model, task, split, batch_size=batch_size, **given)
    how: dict[str, Any] = {"new_texts": new_texts, "calibrated": calibrated, "abstain": abstain}
    how |= {"whole": whole, "digits": precision.digits, "metrics": metrics, "decision": decision}
    before = inference.name_unread(before, unread)
    return conclude_answers(loaded.source, task, name, examples, before, read, **how)


def conclude_answers(
    source: Source,
    task: Task,
    name: str,
    examples: list[Example],
    before: Predictions,
    read: inference.ReadPieces,
    *,
    new_texts: bool = False,
    calibrated: Sequence[str] = (),
    abstain: float | None = None,
    whole: str = "",
    digits: int | None = DIGITS,
    metrics: Mapping[str, float] | None = None,
    decision: LabelDecision | None = None,
) -> AnsweredSplit:
    """`answer_examples` behind the model: the decision on its predictions, and remarks.

    Args:
        source: The folder of the model.
        name: The name of the split, or of the texts.
        before: The predictions without a decision.
        read: Counts of the texts that the model has read.
        new_texts: Whether they are texts of a file, which may have no labels.
        calibrated: Decisions to fit to these examples before: "temperature".
        abstain: The accuracy for which the least probability of an answer is fitted, too.
        whole: A remark on files of which no part is held out.
        digits: The number of significant digits of probabilities; None: all.
        metrics: The scores of `before`; None: they are computed where all examples have labels.
        decision: The decision on the answers; None: as in the folder.
    """
    if metrics is None:
        metrics = task.score(before) if all(each.is_labelled for each in examples) else {}
    if calibrated or abstain is not None:
        origin = FittedRows.of(name, examples)
        calibrate(source, task, origin, before, calibrated, abstain=abstain)
    chosen = read_decision(source.folder) if decision is None else decision
    predictions, told = decide(chosen, source.folder, task, before, digits)
    if calibrated:
        warn_of_fit(before, predictions, task.metrics[0])
    changed = bool(told and metrics)
    own = chosen.find_refitted(name, examples) if chosen else ()
    if changed:
        metrics = {**metrics, **task.score(predictions)}
    new_rows = new_texts or not name.startswith("train")
    home, single = source.home, not new_texts
    remarks = {
        **(warn_of_known(home, examples, single=single) if new_rows else {}),
        **describe_read(read, task, source.home),
        "scored": Told(task.describe_scoring(examples)),
        "split": Told("" if new_texts else whole),
        **(describe_decision(chosen, told, predictions) if chosen and told else {}),
        "loss": Told(UNCHANGED if changed and "loss" in metrics else ""),
        **(_describe_effect(before, predictions, task.metrics, own) if changed else {}),
    }
    scored = not new_texts or inference.is_answered(examples)
    said: dict[str, Any] = keep_said(remarks)
    said |= {"signatures": task.signatures} if task.signatures else {}
    return AnsweredSplit(name, examples, predictions, metrics if scored else {}, said)


def describe_decision(decision: LabelDecision, told: str, after: Predictions) -> dict[str, Told]:
    """Remarks on a decision and on the rows that it answers, by topic."""
    numbers = {name: value for name, value in asdict(decision).items() if value}
    numbers |= {"fitted": origins} if (origins := decision.spell_origins()) else {}
    said = {"decision": Told(told, numbers)}
    if decision.sure:
        known = measure_answered(after, decision.goal)
        said["answered"] = Told(describe_answered(known, len(after)), known)
    return said


def _describe_effect(
    before: Predictions, after: Predictions, metrics: Sequence[str], own: Collection[str]
) -> dict[str, Told]:
    """Remarks on the scores of labelled rows by a decision, by topic.

    Args:
        before: The predictions without it.
        after: The predictions with it.
        metrics: The metrics of the task.
        own: The parts of the decision that were fitted to these rows.
    """
    effects = {"log loss": describe_loss(before, after)}
    if error := describe_calibration(before, after):
        effects["calibration error"] = error
    more = TEMPERED if TEMPERATURE in own else ""
    said = {topic: replace(told, text=told.text + more) for topic, told in effects.items()}
    return said | describe_refitted(own, metrics)


def describe_refitted(own: Collection[str], metrics: Sequence[str]) -> dict[str, Told]:
    """Remarks on parts of a decision that were fitted to the scored rows, by topic."""
    known = [REFITTED[part] for part in own if part in REFITTED]
    return {topic: Told(words.format(metrics=", ".join(metrics))) for topic, words in known}


def warn_of_known(home: Path, examples: Sequence[Example], *, single: bool) -> dict[str, Told]:
    """The sentences of `warn_of_trained` and `warn_of_bundles`, by topic."""
    texts = warn_of_trained(home, examples, single=single)
    return {"trained on": texts, "bundles trained on": warn_of_bundles(home, examples)}


def warn_of_trained(home: Path, examples: Sequence[Example], *, single: bool = False) -> Told:
    """A sentence with the number of examples that a model was trained on, also on the terminal; ""
    for none, or for a folder without hashes.

    Args:
        home: The folder with the hashes of its training texts.
        single: Whether a setting can leave them out, as of a single model.
    """
    trained = read_trained(home)
    if trained is None:
        return Told("")
    count = count_trained(trained, examples)
    line = describe_trained(count, len(examples), home, single=single)
    if line:
        remark(line, WARN)
    return Told(line, count)


def warn_of_bundles(home: Path, examples: Sequence[Example]) -> Told:
    """A sentence alike on examples with new texts whose bundles a model was trained on."""
    known = zip(examples, find_known_bundles(home, examples), strict=True)
    own, trained = [example for example, is_known in known if is_known], read_trained(home)
    seen = np.isin(hash_texts(own), [] if trained is None else trained)
    own = [example for example, is_seen in zip(own, seen, strict=True) if not is_seen]
    line = describe_known_bundles(own, home)
    if line:
        remark(line, WARN)
    return Told(line, len(own))


def describe_read(read: inference.ReadPieces, task: Task, home: Path) -> dict[str, Told]:
    """Remarks on the texts that were read, by topic; "" for a topic without one. `home`: the folder
    of the model.
    """
    return {
        "empty": Told(read.describe_empty(), read.empty),
        "cut": Told(inference.spell_truncation(read.cut), read.cut["any"]),
        "unknown": Told(read.describe_unknown(), read.unknown_share),
        "form of Chinese": Told(read.describe_form(read_trained_forms(home))),
        "read": Told("; ".join(inference.describe_reading(task.splits.reader))),
        "passed over": Told(inference.describe_skipped(task.splits.reader)),
        "files": Told("; ".join(task.remarks)),
    }


def keep_said(remarks: Mapping[str, Told]) -> dict[str, Told]:
    """The remarks that are not empty."""
    return {key: remark for key, remark in remarks.items() if remark.text}
