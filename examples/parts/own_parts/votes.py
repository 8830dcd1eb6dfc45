"""Votes for a text, a count: Poisson regression predicts it (Cameron and Trivedi, 1998, ch. 3)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.base import Answer
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Example


@part_of("answer")
class CountAnswer(Answer):
    """`loss = exp(z) - count * z` with the logit z; the prediction is exp(z)."""

    fields: Mapping[str, Field] = {"labels.votes": Field("[N]", "float", "votes for the example")}
    facts = TaskFacts(
        needs=frozenset({"text", "labels.votes"}), head="votes", outputs=1, chooses=False
    )

    def gold(self, example: Example) -> float:
        if not str(example.label).isdecimal():
            raise DataError(f"'{example.label}' is no count", file=example.place)
        return float(str(example.label))

    def number(self, examples: Sequence[Example], names: list[str] | None) -> dict[str, np.ndarray]:
        return {"votes": np.array([self.gold(each) for each in examples], dtype=np.float32)}

    def loss(self, logits: Tensor, batch: Batch, names: list[str] | None) -> Output:
        z, count = logits.float(), batch.require("labels.votes")
        loss = (z.exp() - count * z).masked_fill(count == IGNORE, 0)  # IGNORE: a row of padding
        return Output({"votes": Term(loss.sum())})

    def predict(
        self, logits: np.ndarray, rows: Rows, examples: Sequence[Example], names: list[str] | None
    ) -> list[dict[str, Any]]:
        guesses = np.exp(logits[encode.firsts(rows)]).tolist()  # one an example
        golds = [None if each.label is None else self.gold(each) for each in examples]
        return [
            {"id": each.id, "gold": gold, "guess": guess}
            for each, gold, guess in zip(examples, golds, guesses, strict=True)
        ]
