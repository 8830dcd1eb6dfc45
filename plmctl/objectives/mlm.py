"""Masked language modelling (Devlin et al., 2019): the model predicts masked tokens."""

from __future__ import annotations

from plmctl.core.batch import Batch
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.ask import ask
from plmctl.objectives.base import Facts, Objective, Output


@part_of("objective")
class MLM(Objective):
    """`- sum over masked positions of log p(token | noised row)`, from the states at `targets.mlm`
    only.

    (Devlin et al., 2019, arXiv:1810.04805, sec. 3.1, task 1).
    """

    facts = Facts(
        needs=frozenset({"text", "targets.mlm"}), heads=frozenset({"mlm"}), terms=frozenset({"mlm"})
    )

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"mlm": batch.counts["mlm"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        return ask(model, batch, "mlm", state=state)
