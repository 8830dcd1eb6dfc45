"""One class for one text or a pair of texts: GLUE's classification tasks and any table with a
label column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import DataError, nearest
from plmctl.core.fields import Field
from plmctl.core.named_values import name_rows
from plmctl.core.parts import part_of
from plmctl.core.tables import count_at_once, make_table, release
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.storage.arrays import walk
from plmctl.tasks.answers.label_loss import LabelLoss
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.texts import encode_texts, parse_texts
from plmctl.tasks.readers.tables import SHARES
from plmctl.tasks.record import Example
from plmctl.tasks.scores import labels as label_score
from plmctl.tasks.task import Task, TaskSettings, label_ids
from plmctl.tasks.transform import Transform, pool_rows


@dataclass(frozen=True, kw_only=True)
class ClassificationSettings(TaskSettings):
    """Settings of classification.

    Args:
        label_names: in the order of the logits; None: as the training split has them.
        positive: the class whose F1 counts.
        submission: {split: the file name that a leader board asks for}.
        transform: The change of rows for a model.
        symmetric: the two texts of a pair have no order.
        class_weights: {label: weight in the loss}, or "balanced"; None: 1 each.
        focal_gamma: The gamma of the focal loss; 0: none.
        label_smoothing: the share of a label that all labels have in equal parts.
    """

    label_names: Sequence[str] | None = None
    positive: str | None = None
    submission: Mapping[str, str] | None = None
    transform: Transform | None = None
    symmetric: bool = False
    class_weights: Mapping[str, float] | str | None = None
    focal_gamma: float = 0.0
    label_smoothing: float = 0.0


@part_of("task")
class Classification(Task):
    """Predicts the class of a text or a pair (Devlin et al., 2019, sec. 4.1; for decoders Radford
    et al., 2018, sec. 3.2).

    `loss = -log softmax(head(pool(h)))[label]`, averaged over examples; pool: `pool_rows`.
    `LabelLoss` weighs classes, smooths labels, and lets easy examples count less.
    `symmetric`: the two texts of a pair stand in no order, so that `transform.both_orders` reads
    them both ways. Where a column states probabilities y of the labels, as of an ensemble that is
    to be imitated, `loss = -sum_k y_k log softmax(z)_k`.
    """

    fields: Mapping[str, Field] = {
        "labels.class": Field("[N]", "int", "class of the example"),
        "labels.shares": Field("[N, K]", "float", "probability of each class, where it is stated"),
    }
    facts = TaskFacts(
        needs=frozenset({"text", "labels.class"}),
        head="class",
        answer="class",
        pipeline="text-classification",
    )

    Settings: ClassVar[type[ClassificationSettings]] = ClassificationSettings

    def __init__(self, **settings: Any) -> None:
        own = self.Settings(**settings)
        needed = (
            "task.positive=<the class whose F1 counts>"
            if own.positive is None and "f1" in own.metrics
            else ""
        )
        super().__init__(
            own,
            metrics=label_score.check_names(own.metrics, self.known_metrics(own), fix=needed),
            label_names=own.label_names,
            submission=own.submission,
            transform=own.transform,
        )
        self.symmetric, self.positive = own.symmetric, own.positive
        self.label_loss = LabelLoss(own.class_weights, own.focal_gamma, own.label_smoothing)
        if self.columns.get(SHARES) is not None:
            self.label_loss.refuse_shares()

    @classmethod
    def known_metrics(cls, settings: ClassificationSettings) -> Iterable[str]:
        """The names of the metrics that `score` can compute."""
        return label_score.known_names(settings.positive)

    def parse(self, line: str, number: int) -> Example:
        return parse_texts(line, number, self.columns)

    def labels_of(self, example: Example) -> Sequence[str]:
        return [example.label]

    def fit_labels(self, examples: Iterable[Example]) -> None:
        examples = list(examples)
        if self.label_names is None:
            stated = {name for example in examples for name in example.shares or ()}
            labels = stated | {example.label for example in examples}
            self.label_names = sorted(labels, key=_natural)
        if len(self.label_names) < 2:
            raise DataError(
                f"only one label, '{self.label_names[0]}'",
                file=examples[0].place,
                fix="check task.columns.label",
            )
        label_ids(
            ((example.label, example.place) for example in examples),
            self.label_names,
            learned=not self.states_labels,
        )
        self.label_loss.fit((example.label for example in examples), self.label_names)

    @property
    def decided(self) -> dict[str, Any]:
        return super().decided | self.label_loss.decided

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        rows = encode_texts(
            examples,
            tokenizer,
            max_length=self.max_length,
            pooling=self.pooling,
            transform=self.transform,
            symmetric=self.symmetric,
        )
        return self.add_classes(rows, examples)

    def add_classes(self, rows: Rows, examples: Sequence[Example]) -> Rows:
        """`rows` with the classes of their examples, and with probabilities where all have some."""
        if any(example.label is None for example in examples):
            return rows
        ids = label_ids(((example.label, example.place) for example in examples), self.names)
        labels = {"class": np.array(ids, dtype=np.int64)}
        if all(example.shares for example in examples):
            labels["shares"] = np.array([self._share_out(example) for example in examples])
        return encode.add_labels(rows, labels)

    def _share_out(self, example: Example) -> np.ndarray:
        """[K] the probability of each class; DataError for a class that is none."""
        shares = example.shares or {}
        if unknown := [name for name in shares if name not in self.names]:
            known = f"{', '.join(self.names)}{nearest(unknown[0], self.names)}"
            raise DataError(f"label '{unknown[0]}' is none of {known}", file=example.place)
        return np.array([shares.get(name, 0.0) for name in self.names], dtype=np.float32)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        return {
            "class": model.heads["class"](pool_rows(self, model, batch, together=True))
        }  # [N, K]

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        labels = batch.require("labels.class")
        total, right = self.label_loss(logits["class"], labels, self.label_names)
        if "shares" in batch.labels:
            total = self.label_loss.of_shares(logits["class"], batch.labels["shares"])
        return Output({"class": Term(total)}, {"acc/class": (right, self.counts(batch)["class"])})

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        probabilities = self.measure_probabilities(logits, rows)
        parts = walk(probabilities, count_at_once(probabilities))
        guesses = [guess for part in parts for guess in part.argmax(-1).tolist()]
        return [
            {
                "id": e.id,
                "gold": e.label,
                "guess": self.names[guess],
                "probabilities": named,
                **label_score.name_sets(e),
            }
            for e, guess, named in zip(
                examples, guesses, name_rows(self.names, probabilities), strict=True
            )
        ]

    def measure_probabilities(self, logits: Mapping[str, np.ndarray], rows: Rows) -> np.ndarray:
        """[n, K] of the classes of each example."""
        scores, first = logits["class"], encode.firsts(rows)
        found = make_table((len(first), scores.shape[1]), np.float64)
        size = count_at_once(found)
        for index, out in zip(walk(first, size), walk(found, size), strict=True):
            out[:] = torch.from_numpy(scores[index]).double().softmax(-1).numpy()
            release(scores)
        return found

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        return label_score.score_labels(predictions, self.metrics, self.positive)


def _natural(label: str) -> tuple[bool, float, str]:
    """Numbers in the order of their values, before words."""
    number = label.lstrip("-").replace(".", "", 1).isdecimal()
    return (not number, float(label) if number else 0.0, label)
