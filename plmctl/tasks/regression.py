"""One number for one text or a pair of texts: STS-B and any table with a column of scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.texts import encode_texts, parse_texts
from plmctl.tasks.readers.read_score import read_score
from plmctl.tasks.record import Example
from plmctl.tasks.scores.metrics import CORRELATIONS, check_metrics
from plmctl.tasks.task import Task, TaskSettings
from plmctl.tasks.transform import Transform, pool_rows


@dataclass(frozen=True, kw_only=True)
class RegressionSettings(TaskSettings):
    """Settings of regression.

    Args:
        submission: {split: the file name that a leader board asks for}.
        transform: The change of rows for a model.
        symmetric: the two texts of a pair have no order.
    """

    submission: Mapping[str, str] | None = None
    transform: Transform | None = None
    symmetric: bool = False


@part_of("task")
class Regression(Task):
    """Predicts a score: one output, mean squared error (Cer et al., 2017, in the form of Devlin et
    al., 2019).

    `loss = (head(pool(h)) - score)^2`; predictions are not clamped to the range of the gold scores.
    Differs: GPT's code fits a six-class soft label; here decoders, too, have one output.
    """

    fields: Mapping[str, Field] = {
        "labels.score": Field("[N]", "float", "score of the example (regression)")
    }
    facts = TaskFacts(
        needs=frozenset({"text", "labels.score"}),
        head="score",
        answer="number",
        pipeline="text-classification",
        outputs=1,
        chooses=False,
    )

    Settings = RegressionSettings

    def __init__(self, **settings: Any) -> None:
        own = RegressionSettings(**settings)
        super().__init__(
            own,
            metrics=check_metrics(own.metrics, CORRELATIONS),
            submission=own.submission,
            transform=own.transform,
        )
        self.symmetric = own.symmetric

    def parse(self, line: str, number: int) -> Example:
        return parse_texts(line, number, self.columns)

    def gold_of(self, example: Example) -> float:
        return _number(example)

    def fit_labels(self, examples: Iterable[Example]) -> None:
        for example in examples:
            _number(example)

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        rows = encode_texts(
            examples,
            tokenizer,
            max_length=self.max_length,
            pooling=self.pooling,
            transform=self.transform,
            symmetric=self.symmetric,
        )
        if any(example.label is None for example in examples):
            return rows
        return encode.add_labels(
            rows, {"score": np.array([_number(example) for example in examples], dtype=np.float32)}
        )

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        # [N]
        return {
            "score": model.heads["score"](pool_rows(self, model, batch, together=True)).squeeze(-1)
        }

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        gold = batch.require("labels.score")
        error = (logits["score"].float() - gold).masked_fill(gold == IGNORE, 0)
        return Output({"score": Term(error.square().sum())})

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        return [
            {"id": e.id, "gold": None if e.label is None else _number(e), "guess": float(guess)}
            for e, guess in zip(examples, logits["score"][encode.firsts(rows)], strict=True)
        ]

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        gold, guess = [p["gold"] for p in predictions], [p["guess"] for p in predictions]
        return {name: CORRELATIONS[name](gold, guess) for name in self.metrics}


def _number(example: Example) -> float:
    return read_score(example.label, example.place)
