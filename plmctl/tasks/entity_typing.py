"""The types of a marked entity, of which it may have several: Open Entity, FIGER and files of
their layouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output
from plmctl.tasks.answers import label_sets
from plmctl.tasks.answers.label_sets import LabelSets, Rule
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts.marked import MENTIONS, States
from plmctl.tasks.layouts.markers import Style
from plmctl.tasks.marked import MarkedTask
from plmctl.tasks.readers.entity_tags import read_tags
from plmctl.tasks.record import Example
from plmctl.tasks.scores import types as typing_score
from plmctl.tasks.scores.label_sets import TRIED
from plmctl.tasks.scores.metrics import check_metrics, floor, often
from plmctl.tasks.task import TaskSettings


@dataclass(frozen=True, kw_only=True)
class TypingSettings(TaskSettings):
    """Settings of entity typing.

    Args:
        label_names: in the order of the logits; None: as the training split has them.
        marks: around the mention (tasks/layouts/markers.py).
        states: The states that the types are read from.
        entities: The entities, as for relations.
        decide: "above": all types above the threshold; "top": these, and always the first one.
        threshold: The probability threshold of a type.
    """

    label_names: Sequence[str] | None = None
    marks: Style = "symbols"
    entities: str | None = None
    states: States = "row"
    decide: Rule = "above"
    threshold: float = 0.5
    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]  # its files have none


@part_of("task")
class EntityTyping(MarkedTask):
    """Predicts all types of a marked mention, each by itself (Zhang et al., 2019,
    arXiv:1905.07129, sec. 3.5).

    `loss = - mean over types k of [y_k log s(z_k) + (1 - y_k) log s(-z_k)]`, z the logits, s the
    sigmoid, averaged over mentions. Types with s(z_k) > `threshold` are guessed: with 0.5 those
    with z_k > 0 (Open Entity), with `decide="top"` also the best one (FIGER). The metrics are
    followed by the threshold that has the best micro F1 (loose) on these very predictions, and that
    F1. Its value on dev is meant for `task.threshold` on test.
    """

    fields: Mapping[str, Field] = {"labels.types": label_sets.FIELD, "values.mentions": MENTIONS}
    facts = TaskFacts(
        needs=frozenset({"text", "labels.types", "values.mentions"}),
        head="types",
        answer="types",
        chooses=False,
        typed="texts that you type, one a line, with <e1>mention</e1>",
    )
    count = 1

    Settings = TypingSettings

    def __init__(self, **settings: Any) -> None:
        own = TypingSettings(**settings)
        self.sets = LabelSets(own.threshold, own.decide)
        super().__init__(
            own, metrics=check_metrics(own.metrics, typing_score.NAMES), label_names=own.label_names
        )
        self.mark(own.marks, own.states, own.entities)

    @property
    def remarks(self) -> list[str]:
        return self.sets.remarks

    def parse(self, line: str, number: int) -> Example:
        text, (start, end) = read_tags(line, 1)
        entity = {"start": start, "end": end, "id": "", "type": ""}
        return Example(
            str(number - 1), {"text": text, "entities": [entity]}, place=f"line {number}"
        )

    def labels_of(self, example: Example) -> Sequence[str]:
        return list(example.label)

    def fit_labels(self, examples: Iterable[Example]) -> None:
        self.label_names = self.sets.fit(examples, self.label_names)

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        return self.sets.add_labels(self.encode_texts(examples, tokenizer), examples, self.names)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        return {"types": model.heads["types"](self.read_states(model, batch))}  # [B, K]

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        return self.sets.loss(logits["types"], batch, self.label_names)

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        return self.sets.predict(logits["types"], examples, self.names)

    def decide(self, probabilities: Mapping[str, float]) -> list[str]:
        return self.sets.decide(probabilities)

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        gold, guess = [p["gold"] for p in predictions], [p["guess"] for p in predictions]
        found = typing_score.score_types(gold, guess)
        threshold, best = typing_score.find_threshold(
            gold, [p["probabilities"] for p in predictions]
        )
        flat = (name for own in gold for name in own)
        constant = [
            typing_score.score_types(gold, [types] * len(gold))
            for types in ([], *([name] for name in often(flat, most=TRIED)))
        ]
        lowest = floor(self.metrics, [], lambda name: max(each[name] for each in constant))
        tuned = {"best_threshold": threshold, "f1_at_best_threshold": best}
        return {name: found[name] for name in self.metrics} | lowest | tuned
