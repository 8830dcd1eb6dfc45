"""One class for a text or a pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import DataError, nearest
from plmctl.core.fields import Field
from plmctl.core.named_values import name_rows
from plmctl.core.parts import part_of
from plmctl.core.tables import count_at_once, make_table, release
from plmctl.objectives.base import Output, Term
from plmctl.storage.arrays import walk
from plmctl.tasks.answers.base import Answer
from plmctl.tasks.answers.label_ids import describe_new, find_new, label_ids
from plmctl.tasks.answers.label_loss import LabelLoss
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.readers.tables import SHARES
from plmctl.tasks.record import Example, Examples
from plmctl.tasks.scores import labels as label_score


@part_of("answer")
class ClassAnswer(Answer):
    """`loss = -log softmax(z)[label]`, z = head(pool(h)); `LabelLoss` weighs classes, smooths
    labels, and lets easy examples count less.

    Where all examples state probabilities y of the labels, `loss = -sum_k y_k log softmax(z)_k`.
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

    def __init__(
        self,
        *,
        class_weights: Mapping[str, float] | str | None = None,
        focal_gamma: float = 0.0,
        label_smoothing: float = 0.0,
    ) -> None:
        self.label_loss = LabelLoss(class_weights, focal_gamma, label_smoothing)
        self.new, self.scored = Counter[str](), 0  # scored rows by labels that the model lacks

    @property
    def remarks(self) -> list[str]:
        return [*filter(None, [describe_new(self.new, self.scored)])]

    def admit(self, examples: Examples, names: list[str] | None) -> Counter[str]:
        labels = [each.label for each in examples if each.label is not None]
        self.new, self.scored = find_new(labels, names or ()), len(labels)
        return self.new

    @property
    def decided(self) -> dict[str, Any]:
        return self.label_loss.decided

    def check_columns(self, columns: Mapping[str, Any]) -> None:
        if columns.get(SHARES) is not None:
            self.label_loss.refuse_shares()

    def seen(self, example: Example) -> Sequence[str]:
        return [example.label]

    def fit(self, examples: Examples, names: list[str] | None, *, stated: bool) -> list[str]:
        if names is None:
            shares = {name for example in examples for name in example.shares or ()}
            names = sorted(shares | {example.label for example in examples}, key=_natural)
        if len(names) < 2:
            problem = f"only one label, '{names[0]}'"
            raise DataError(problem, file=examples[0].place, fix="check task.columns.label")
        label_ids(
            ((each.label, each.place) for each in examples), names, learned=not stated, merged=True
        )
        self.label_loss.fit((example.label for example in examples), names)
        return names

    def number(self, examples: Examples, names: list[str] | None) -> dict[str, np.ndarray]:
        assert names is not None
        pairs = ((example.label, example.place) for example in examples)
        ids = label_ids(pairs, names, merged=True, missed=self.new)
        labels = {"class": np.array(ids, dtype=np.int64)}
        if all(example.shares for example in examples):
            labels["shares"] = np.array([_share_out(example, names) for example in examples])
        return labels

    def loss(self, logits: Tensor, batch: Batch, names: list[str] | None) -> Output:
        labels = batch.require("labels.class")
        total, right = self.label_loss(logits, labels, names)
        if "shares" in batch.labels:
            total = self.label_loss.of_shares(logits, batch.labels["shares"])
        return Output({"class": Term(total)}, {"acc/class": (right, batch.counts["class"])})

    def predict(
        self, logits: np.ndarray, rows: Rows, examples: Examples, names: list[str] | None
    ) -> list[dict[str, Any]]:
        assert names is not None
        probabilities, guesses = _measure_probabilities(logits, rows)
        return [
            {
                "id": e.id,
                "gold": e.label,
                "guess": names[guess],
                "probabilities": named,
                **label_score.name_sets(e),
            }
            for e, guess, named in zip(
                examples, guesses, name_rows(names, probabilities), strict=True
            )
        ]


def _measure_probabilities(scores: np.ndarray, rows: Rows) -> tuple[np.ndarray, list[int]]:
    """([n, K] of the classes of each example, the most probable class of each)."""
    first = encode.firsts(rows)
    found = make_table((len(first), scores.shape[1]), np.float64)
    guesses: list[int] = []
    size = count_at_once(found)
    for index, out in zip(walk(first, size), walk(found, size), strict=True):
        out[:] = torch.from_numpy(scores[index]).double().softmax(-1).numpy()
        guesses += out.argmax(-1).tolist()
        release(scores)
    return found, guesses


def _share_out(example: Example, names: Sequence[str]) -> np.ndarray:
    """[K] the probability of each class; DataError for an unknown class."""
    shares = example.shares or {}
    if unknown := [name for name in shares if name not in names]:
        known = f"{', '.join(names)}{nearest(unknown[0], names)}"
        raise DataError(f"label '{unknown[0]}' is none of {known}", file=example.place)
    return np.array([shares.get(name, 0.0) for name in names], dtype=np.float32)


def _natural(label: str) -> tuple[bool, float, str]:
    """Numbers in the order of their values, before words."""
    number = label.lstrip("-").replace(".", "", 1).isdecimal()
    return (not number, float(label) if number else 0.0, label)
