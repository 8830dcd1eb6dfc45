"""Shuffled-token detection (Panda et al., 2021): which tokens of a row have moved?"""

from __future__ import annotations

from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Objective, Output, Term


@part_of("objective")
class ShuffledTokens(Objective):
    """`- sum_t log p(shuffled_t | noised row)` over all tokens that are not special."""

    facts = Facts(
        needs=frozenset({"text", "targets.shuffled"}),
        heads=frozenset({"discriminator"}),
        terms=frozenset({"shuffled_tokens"}),
        at_every_token=frozenset({"discriminator"}),
    )

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"shuffled_tokens": batch.counts["shuffled"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        targets = batch.require("targets.shuffled")  # [P], IGNORE in spare slots
        states = model(batch, state).gather(targets.index)  # [P, W]
        logits = model.heads["discriminator"](states).float()  # [P]
        labels, asked = (targets.ids == 1).float(), targets.ids != IGNORE
        loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        right = ((logits > 0) == (labels == 1)) & asked
        return Output(
            {"shuffled_tokens": Term(loss.masked_fill(~asked, 0).sum())},
            logs={"acc/shuffled_tokens": (right.sum(), targets.count)},
        )
