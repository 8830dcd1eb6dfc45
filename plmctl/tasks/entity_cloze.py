"""ReCoRD: which entity of a passage is missing in a sentence about it?"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.choice import ChoiceAnswer, add_exponentials, find_largest
from plmctl.tasks.choices import Choice, ChoiceSettings
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Example, Examples, Predictions
from plmctl.tasks.scores import squad as squad_score
from plmctl.tasks.scores.base import MEAN, Scores

SCORES: dict[str, Callable[[str, str], float]] = {
    "f1": partial(squad_score.f1, version=1),
    "exact": squad_score.exact,
}


@dataclass(frozen=True, kw_only=True)
class RecordSettings(ChoiceSettings):
    """Settings of ReCoRD: those of multiple choice; its files have no columns."""

    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]


class EntityAnswer(ChoiceAnswer):
    """`loss = -log sum_{k right} softmax(z)_k`; an entity may have several right names."""

    @staticmethod
    def mark(example: Example) -> list[bool]:
        """Whether each entity is a right answer."""
        return [name in example.label for name in example.fields["candidates"]]

    def gold(self, example: Example) -> int:
        """The number of the first right entity."""
        return self.mark(example).index(True)

    def loss(self, logits: Tensor, batch: Batch, names: list[str] | None) -> Output:
        scores, group = logits.float(), batch.require("values.group")
        right = scores.masked_fill(~batch.require("values.right"), -torch.inf)
        count = batch.counts["choice"]
        most, best = find_largest(scores, group)[:count], find_largest(right, group)[:count]
        total = add_exponentials(scores, group)[:count] - add_exponentials(right, group)[:count]
        return Output({"choice": Term(total.sum())}, {"acc/choice": ((most == best).sum(), count)})

    def predict(
        self, logits: np.ndarray, rows: Rows, examples: Examples, names: list[str] | None
    ) -> list[dict[str, Any]]:
        found = []
        scores = np.split(logits.astype(np.float64), encode.firsts(rows)[1:])
        for example, own in zip(examples, scores, strict=True):
            entities = example.fields.get("candidates", example.fields["choices"])
            probabilities = torch.from_numpy(own).softmax(0).tolist()
            found.append(
                {
                    "id": example.id,
                    "golds": list(example.label or ()),
                    "guess": entities[int(own.argmax())],
                    "probabilities": dict(zip(entities, probabilities, strict=True)),
                }
            )
        return found


class EntityScores(Scores):
    """F1 and exact match of SQuAD 1.1, the best over all right names."""

    known = (*SCORES, MEAN)

    def describe_metric(self, name: str) -> str:
        return "" if name == MEAN else squad_score.describe_answers(name)

    def __call__(self, predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
        values = {
            name: statistics.fmean(
                max(score(gold, p["guess"]) for gold in p["golds"]) for p in predictions
            )
            for name, score in SCORES.items()
            if name in names
        }
        mean = {MEAN: statistics.fmean(values.values())}
        return {name: (values | mean)[name] for name in names}


@part_of("task")
class EntityCloze(Choice):
    """Multiple choice among the entities of a passage, each in the gap of the query: a score for
    each row `passage, query` (Wang et al., 2019, arXiv:1905.00537, sec. 4.1).

    `loss = -log sum_{k right} softmax(z)_k`, averaged over questions: an entity may have several
    names, and any is right. Differs: published, each entity is judged apart. `f1` and `exact` are
    those of SQuAD 1.1, the best over all right names.
    """

    fields: Mapping[str, Field] = {
        "values.right": Field("[n]", "bool", "whether the entity in the row is a right answer")
    }
    # an example may have several right answers
    facts = replace(Choice.facts, answer="")

    Settings = RecordSettings

    def judge(self, own: ChoiceSettings) -> tuple[ChoiceAnswer, Scores]:
        return EntityAnswer(), EntityScores()

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        rows = super().encode(examples, tokenizer)
        if any(example.label is None for example in examples):
            return rows
        right = [mark for example in examples for mark in EntityAnswer.mark(example)]
        return encode.add_values(rows, right=np.array(right))
