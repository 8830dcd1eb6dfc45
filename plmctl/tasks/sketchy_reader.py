"""Can a question be answered from its passage? The first of the two readings of the retrospective
reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.base import cross_entropy
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Arrays, Example, Examples, Predictions
from plmctl.tasks.scores import metrics
from plmctl.tasks.squad import Squad
from plmctl.tasks.transform import pool_rows

HEAD = "answerable"
NAMES = ("answerable", "unanswerable")  # by the number of their logit
LABEL = Field("[n]", "int", "0: the answer stands in the row, 1: no answer, or not here")


def label_windows(rows: Rows) -> Rows:
    """`rows` of SQuAD with the label `answerable` of each window; IGNORE where it is not known."""
    assert rows.anchors is not None
    first = rows.labels["span"][:, 0]
    empty = np.where(first == rows.anchors[:, 1], 1, 0)
    return encode.add_labels(rows, {"answerable": np.where(first == IGNORE, IGNORE, empty)})


@part_of("task")
class SketchyReader(Squad):
    """Classifies questions as answerable or not: the external front verifier of the sketchy reading
    (Zhang et al., 2020, arXiv:2001.09694, Retrospective Reader, sketchy reading module).

    `loss = CE(answerable)` of each window, on the state of the row. Predicted:
    `null_odds = min over windows (logit_unanswerable - logit_answerable)`, score_ext of the paper;
    the guess is `unanswerable` where it is above 0. Differs: how windows of one question are joined
    is not published; the smallest is taken, as for spans (Devlin et al., 2019, run_squad).
    """

    fields: Mapping[str, Field] = {"labels.answerable": LABEL}
    facts = replace(
        Squad.facts,
        answer="",
        needs=frozenset({"text", "labels.answerable"}),
        head=HEAD,
        pipeline="text-classification",
        own_logits=(),
    )

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if self.version != 2:
            allowed = "2, in which a question may have no answer"
            raise ConfigError("task.version", self.version, allowed, fix="task.version=2")

    @classmethod
    def list_metrics(cls, settings: Any) -> Sequence[str]:
        return list(metrics.by_name(NAMES[1]))

    def parse(self, line: str, number: int) -> Example:
        typed = super().parse(line, number)
        question = {name: typed.fields[name] for name in ("question", "context")}
        return replace(typed, fields=question)  # whether it has an answer is not known

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        rows = label_windows(super().encode(examples, tokenizer))
        return replace(rows, labels={"answerable": rows.labels["answerable"]})

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        return {HEAD: model.heads[HEAD](pool_rows(self, model, batch))}  # [B, 2]

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        total, right = cross_entropy(logits[HEAD], batch.require("labels.answerable"))
        return Output({HEAD: Term(total)}, {f"acc/{HEAD}": (right, self.counts(batch)[HEAD])})

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        scores = logits[HEAD].astype(np.float64)
        odds = np.full(len(examples), np.inf)
        np.minimum.at(odds, rows.values["example"], scores[:, 1] - scores[:, 0])
        return [
            self._describe(example, value)
            for example, value in zip(examples, odds.tolist(), strict=True)
        ]

    def _describe(self, example: Example, odds: float) -> dict[str, Any]:
        p = float(1 / (1 + np.exp(-odds)))
        return {
            "id": example.id,
            "gold": NAMES[example.label is None] if "answers" in example.fields else None,
            "guess": NAMES[odds > 0],
            "probabilities": dict(zip(NAMES, (1 - p, p), strict=True)),
            "null_odds": odds,
        }

    def score(self, predictions: Predictions) -> dict[str, float]:
        gold, guess = ([str(p[side]) for p in predictions] for side in ("gold", "guess"))
        known = metrics.by_name(NAMES[1])
        return {name: known[name](gold, guess) for name in self.metrics}
