"""The common base of the objectives of BERT, ALBERT and StructBERT on two segments."""

from __future__ import annotations

from dataclasses import replace

from plmctl.core.batch import Batch
from plmctl.heads.base import head_of
from plmctl.models.base import Model
from plmctl.objectives.ask import make_output
from plmctl.objectives.base import Facts, Objective, Output


class PairObjective(Objective):
    """`- sum over anchors of log p(labels.pair | pooled state)`: logits [N, K] of the head called
    `name`, after the pooler.

    The format says which relation each of the K labels is. A subclass is a `name`: of its term,
    its accuracy and its head.
    """

    facts = Facts(needs=frozenset({"text", "labels.pair"}), asks_row=True)
    name: str

    def __init__(self) -> None:
        super().__init__()
        self.facts = replace(
            self.facts,
            heads=frozenset({"pooler", self.name}),
            terms=frozenset({self.name}),
            label_heads={"pair": self.name},
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.name: batch.counts["pair"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        labels = batch.require("labels.pair")
        assert batch.anchors is not None  # the loader sets them together with labels
        pooled = model.heads["pooler"](model(batch, state).gather_anchors(batch.anchors))
        total, right = head_of(model, self.name).loss(pooled, labels)
        return make_output(self.name, total, right, batch.counts["pair"], answers=labels)
