"""Replaced-token detection: which tokens did the noise replace?"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Objective, Output, Term, Verdicts
from plmctl.objectives.generator import wide


@part_of("objective")
class RTD(Objective):
    """`- sum_t log p(replaced_t | text)` over targets.replaced: tokens that the noise replaced
    against all others.

    ELECTRA's objective (Clark et al., 2020, arXiv:2003.10555, sec. 2) with samples from a fixed
    distribution, the corpus' frequencies to a power (noise token_replace). So it is negative
    sampling (Mikolov et al., 2013, arXiv:1310.4546, sec. 2.2), of tokens in their context. Differs
    from noise-contrastive estimation: the logit stands for the odds themselves, without the noise's
    frequency. Special tokens, which the noise never replaces, have no targets.
    """

    facts = Facts(
        needs=frozenset({"text", "targets.replaced"}),
        heads=frozenset({"discriminator"}),
        terms=frozenset({"rtd"}),
        at_every_token=frozenset({"discriminator"}),
    )

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"rtd": batch.counts["replaced"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        targets = batch.require("targets.replaced")
        logits = model.heads["discriminator"](model(batch, state).gather(targets.index))
        return detect(logits, targets.ids == 1, targets.ids != IGNORE, targets.count)

    def judge_tokens(self, model: Model, batch: Batch) -> Verdicts | None:
        targets = batch.require("targets.replaced")
        logits = model.heads["discriminator"](model(batch).gather(targets.index))
        nowhere = torch.full(batch.text.ids.shape, torch.nan, device=logits.device)
        shares = targets.write_into(nowhere, wide(logits).sigmoid())
        replaced = targets.write_into(torch.zeros_like(batch.text.ids), targets.ids) == 1
        return Verdicts(batch, replaced, shares)


def detect(
    logits: Tensor, replaced: Tensor, compared: Tensor, count: int, weight: float = 1.0
) -> Output:
    """The summed binary cross-entropy of `logits [P]` where `compared [P]`, with its accuracy, the
    share replaced, precision and recall.
    """
    logits = wide(logits)
    losses = F.binary_cross_entropy_with_logits(logits, replaced.to(logits.dtype), reduction="none")
    predicted, actual = (logits > 0) & compared, replaced & compared
    detected = (predicted & actual).sum()
    logs: dict[str, tuple[Tensor, int | Tensor]] = {
        "acc/rtd": (((predicted == actual) & compared).sum(), count),
        "replaced": (actual.sum(), count),
        "precision/rtd": (detected, predicted.sum()),
        "recall/rtd": (detected, actual.sum()),
    }
    total = losses.masked_fill(~compared, 0).sum()
    answers = {"rtd": replaced.long().masked_fill(~compared, IGNORE)}
    return Output({"rtd": Term(total, weight)}, logs, answers=answers)
