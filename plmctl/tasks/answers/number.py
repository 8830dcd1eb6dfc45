"""One number for a text or a pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.base import Answer
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.readers.read_score import read_score
from plmctl.tasks.record import Example, Examples
from plmctl.tasks.scores.labels import name_sets


@part_of("answer")
class NumberAnswer(Answer):
    """`loss = (head(pool(h)) - score)^2` (Cer et al., 2017, in the form of Devlin et al., 2019);
    predictions are not clamped to the range of the gold scores.
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

    def gold(self, example: Example) -> float:
        return read_score(example.label, example.place)

    def number(self, examples: Examples, names: list[str] | None) -> dict[str, np.ndarray]:
        return {"score": np.array([self.gold(example) for example in examples], dtype=np.float32)}

    def loss(self, logits: Tensor, batch: Batch, names: list[str] | None) -> Output:
        gold = batch.require("labels.score")
        error = (logits.float() - gold).masked_fill(gold == IGNORE, 0)
        return Output({"score": Term(error.square().sum())})

    def predict(
        self, logits: np.ndarray, rows: Rows, examples: Examples, names: list[str] | None
    ) -> list[dict[str, Any]]:
        return [
            {
                "id": e.id,
                "gold": None if e.label is None else self.gold(e),
                "guess": float(guess),
                **name_sets(e),
            }
            for e, guess in zip(examples, logits[encode.firsts(rows)], strict=True)
        ]
