"""The retrospective reader of SQuAD 2.0: answers, a verifier, and the doubts of a first, sketchy
reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.values import Number
from plmctl.heads.base import cross_entropy
from plmctl.heads.features import read as features_of
from plmctl.heads.rows import take_anchors
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.term_weights import read_weights
from plmctl.tasks.readers.former import read_former
from plmctl.tasks.record import Arrays, Example, Examples
from plmctl.tasks.sketchy_reader import LABEL, label_windows
from plmctl.tasks.squad import Squad, SquadSettings

TERMS = ("span", "answerable")
FIRST = "plmctl eval checkpoint=<a run of task=sketchy_reader> split=dev out=<folder>"


class _Prediction(TypedDict):
    id: str
    null_odds: float


@dataclass(frozen=True, kw_only=True)
class RetroReaderSettings(SquadSettings):
    """Settings of the retrospective reader.

    Args:
        weights: The weights of the losses of span and answerable.
        sketchy_path: the folder with predictions of a sketchy reader; None: none.
        span_odds: the weight of the span's own odds against an answer (beta_1), where a sketchy
            reader is named.
        sketchy_odds: the weight of the odds of that reader (beta_2).
    """

    weights: Mapping[str, Number]
    sketchy_path: str | None = None
    span_odds: Number = 0.5
    sketchy_odds: Number = 0.5


@part_of("task")
class RetroReader(Squad):
    """Reads intensively, with an internal front verifier, and verifies in the rear (Zhang et al.,
    2020, arXiv:2001.09694, Retrospective Reader, intensive reading and rear verification).

    `loss = alpha_1 span + alpha_2 CE(answerable)`, the span's as of `Squad`, the class on the state
    of the anchor. An answer is empty where `beta_1 score_diff + beta_2 score_ext > null_threshold`.
    `score_diff` is the null score less that of the best span. `score_ext` is the odds of a sketchy
    reader (`SketchyReader`) that the question has no answer. Without a sketchy reader score_diff
    alone counts. `best_f1_threshold` is the threshold that is best on a split. Differs: no
    question-aware matching layer behind the encoder.
    """

    fields: Mapping[str, Field] = {"labels.answerable": LABEL}
    facts = replace(
        Squad.facts,
        needs=frozenset({"text", "labels.span", "labels.answerable"}),
        heads=frozenset(TERMS),
    )
    Settings = RetroReaderSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        own = RetroReaderSettings(**settings)
        if self.version != 2:
            allowed = "2, in which a question may have no answer"
            raise ConfigError("task.version", self.version, allowed, fix="task.version=2")
        self.weights = read_weights(own.weights, TERMS)
        self.sketchy_path = own.sketchy_path
        self.span_odds, self.sketchy_odds = own.span_odds, own.sketchy_odds

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        return label_windows(super().encode(examples, tokenizer))

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        found = super().logits(model, batch)
        state = take_anchors(features_of(model, batch), batch)
        return {**found, "answerable": model.heads["answerable"](state)}  # [B, 2]

    def counts(self, batch: Batch) -> dict[str, int]:
        return {name: batch.counts[name] for name in TERMS}

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        span = super().loss(logits, batch)
        total, right = cross_entropy(logits["answerable"], batch.require("labels.answerable"))
        totals = {"span": span.terms["span"].total, "answerable": total}
        logs = {**span.logs, "acc/answerable": (right, self.counts(batch)["answerable"])}
        return Output({name: Term(t, self.weights[name]) for name, t in totals.items()}, logs)

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        found = super().predict(logits, rows, examples)
        if self.sketchy_path is None:
            return found
        known = read_odds(Path(self.sketchy_path).expanduser())
        return [
            self._verify(prediction, known, example)
            for prediction, example in zip(found, examples, strict=True)
        ]

    def _verify(
        self, prediction: Mapping[str, Any], known: Mapping[str, float], example: Example
    ) -> dict[str, Any]:
        if example.id not in known:
            problem = f"{self.sketchy_path} has no prediction of question {example.id}"
            raise DataError(problem, file=example.place, fix=FIRST)
        own, other = prediction["null_odds"], known[example.id]
        odds = self.span_odds * own + self.sketchy_odds * other
        return {**prediction, "null_odds": odds, "span_odds": own, "sketchy_odds": other}


def read_odds(folder: Path) -> dict[str, float]:
    """{id of a question: odds that it has no answer} in the predictions of all splits."""
    former = read_former(folder, _Prediction, task="sketchy_reader", fix=FIRST)
    return {prediction["id"]: prediction["null_odds"] for prediction in former}
