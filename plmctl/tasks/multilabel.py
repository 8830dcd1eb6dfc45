"""Any number of labels for one text or a pair of texts, from tables of the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output
from plmctl.tasks.answers import label_sets
from plmctl.tasks.answers.label_loss import EachLabelLoss
from plmctl.tasks.answers.label_sets import LabelSets, Rule, Threshold
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.texts import encode_texts, parse_texts
from plmctl.tasks.readers.label_lists import name_places
from plmctl.tasks.record import Example
from plmctl.tasks.scores import label_sets as multilabel_score
from plmctl.tasks.scores.metrics import check_metrics
from plmctl.tasks.task import Task, TaskSettings
from plmctl.tasks.transform import Transform, pool_rows


@dataclass(frozen=True, kw_only=True)
class MultilabelSettings(TaskSettings):
    """Settings of multi-label classification.

    Args:
        label_names: in the order of the logits; None: as the training split has them.
        threshold: The probability threshold of a label: one for all, or {label: its own}.
        decide: "above": all labels above their threshold; "top": these, and always the first one.
        transform: The change of rows for a model.
        class_weights: {label: weight in the loss where it is there}, or "balanced"; None: 1 each.
        focal_gamma: The gamma of the focal loss; 0: none.
        label_smoothing: the share of a decision that both of its sides have in equal parts.
    """

    label_names: Sequence[str] | None = None
    threshold: Threshold = label_sets.HALF
    decide: Rule = "above"
    transform: Transform | None = None
    class_weights: Mapping[str, float] | str | None = None
    focal_gamma: float = 0.0
    label_smoothing: float = 0.0


@part_of("task")
class Multilabel(Task):
    """Predicts all labels of a text or a pair, each by itself ("binary relevance": Tsoumakas et
    al., 2010, "Mining Multi-label Data", sec. 34.3).

    `loss = - mean over labels k of [y_k log s(z_k) + (1 - y_k) log s(-z_k)]`, z = head(pool(h)), s
    the sigmoid, averaged over examples; `EachLabelLoss` weighs and smooths it. Labels whose s(z_k)
    is above their threshold are guessed. The metrics are followed by the threshold that has the
    best micro F1 on these very predictions, and that F1.
    """

    fields: Mapping[str, Field] = {"labels.types": label_sets.FIELD}
    facts = TaskFacts(
        needs=frozenset({"text", "labels.types"}),
        head=label_sets.HEAD,
        answer="types",
        chooses=False,
    )

    Settings = MultilabelSettings

    def __init__(self, **settings: Any) -> None:
        own = MultilabelSettings(**settings)
        metrics = check_metrics(own.metrics, multilabel_score.NAMES)
        super().__init__(own, metrics=metrics, label_names=own.label_names, transform=own.transform)
        self.splits = replace(self.splits, change=self._name_places)
        loss = EachLabelLoss(own.class_weights, own.focal_gamma, own.label_smoothing)
        self.sets = LabelSets(own.threshold, own.decide, loss)

    @property
    def remarks(self) -> list[str]:
        return self.sets.remarks

    @property
    def decided(self) -> dict[str, Any]:
        return super().decided | self.sets.label_loss.decided

    def parse(self, line: str, number: int) -> Example:
        return parse_texts(line, number, self.columns)

    def _name_places(self, examples: list[Example]) -> list[Example]:
        """Labels that are positions in lists of 0 and 1, by the names that the config states, or by
        all positions.
        """
        columns = self.columns.get("labels")
        if self.label_names is None and isinstance(columns, list | tuple):
            self.label_names = [str(name) for name in columns]
        sizes = {*getattr(self.reader, "places", {}).values()}
        if not sizes:
            return examples
        size = max(sizes)
        if self.label_names is None:
            self.label_names = [str(place) for place in range(size)]
        if len(self.label_names) != size or len(sizes) > 1:
            allowed = f"{size} names, one for each position of the lists of 0 and 1"
            raise ConfigError("task.label_names", self.label_names, allowed)
        return [
            e if e.label is None else replace(e, label=name_places(e.label, self.label_names))
            for e in examples
        ]

    def labels_of(self, example: Example) -> Sequence[str]:
        return list(example.label)

    def fit_labels(self, examples: Iterable[Example]) -> None:
        self.label_names = self.sets.fit(examples, self.label_names)

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        rows = encode_texts(
            examples,
            tokenizer,
            max_length=self.max_length,
            pooling=self.pooling,
            transform=self.transform,
            symmetric=False,
        )
        return self.sets.add_labels(rows, examples, self.names)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        pooled = pool_rows(self, model, batch, together=True)
        return {self.facts.head: model.heads[self.facts.head](pooled)}  # [N, K]

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        return self.sets.loss(logits[self.facts.head], batch, self.label_names)

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        return self.sets.predict(
            encode.take_firsts(rows, logits[self.facts.head]), examples, self.names
        )

    def decide(self, probabilities: Mapping[str, float]) -> list[str]:
        return self.sets.decide(probabilities)

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        return multilabel_score.score_predictions(predictions, self.metrics)
