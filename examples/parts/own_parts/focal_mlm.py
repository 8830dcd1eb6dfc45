"""Focal masked language modelling (after Lin et al., 2017): easy tokens count less."""

import torch
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Objective, Output, Term


@part_of("objective")
class FocalMLM(Objective):
    """`- sum over masked positions of (1 - p)^gamma log p`, p = p(token | noised row).

    arXiv:1708.02002, eq. 4.
    """

    facts = Facts(
        needs=frozenset({"text", "targets.mlm"}),
        heads=frozenset({"mlm"}),
        terms=frozenset({"focal_mlm"}),
    )

    def __init__(self, *, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"focal_mlm": batch.counts["mlm"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        targets = batch.require("targets.mlm")
        logits = model.heads["mlm"](model(batch, state).gather(targets.index)).float()  # [P, V]
        # [P], 0 in spare slots
        loss = F.cross_entropy(logits, targets.ids, ignore_index=IGNORE, reduction="none")
        total = ((1 - torch.exp(-loss)) ** self.gamma * loss).sum()
        return Output({"focal_mlm": Term(total)})
