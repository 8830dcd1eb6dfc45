"""All-Tokens MLM (Clark et al., 2020, sec. 3.4): the original token is predicted at every
position, replaced or not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch
from plmctl.core.parts import part_of
from plmctl.heads.lm import LMHead
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Objective, Output, Term
from plmctl.objectives.generator import Generator, log_likelihood, wide


@part_of("objective")
class AllTokensMLM(Objective):
    """`mean_i - log p_G(x_i | masked) + mean_t - log p(x_t | text with G's samples)`, t over every
    token but padding.

    `p(v) = c [v = input_t] + (1 - c) softmax_t(v)`: a gate c = sigmoid(w h_t) copies the input, the
    rest is a language model over the vocabulary (Clark et al., 2020, arXiv:2003.10555, sec. 3.4).
    Differs: the paper gives no weights; here both are 1.
    """

    facts = Facts(
        needs=frozenset({"text", "targets.mlm"}),
        heads=frozenset({"mlm", "copy"}),
        terms=frozenset({"mlm", "all_tokens_mlm"}),
        generator_terms=frozenset({"mlm"}),
        at_every_token=frozenset({"mlm", "copy"}),
    )

    def __init__(self, *, generator: Generator) -> None:
        super().__init__()
        self.generator = generator
        self.facts = replace(self.facts, needs=self.facts.needs | generator.backbone.needs)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"mlm": batch.counts["mlm"], "all_tokens_mlm": batch.counts["tokens"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        drawn = self.generator(batch)
        count = batch.counts["tokens"]
        real = batch.text.real.flatten()
        own, guessed = self.generator.head.loss(drawn.features, batch.require("targets.mlm").ids)
        hidden, kept = model(drawn.batch).words.flatten(0, 1), ~drawn.replaced.flatten()
        gate = wide(model.heads["copy"](hidden))
        head = cast(LMHead, model.heads["mlm"])
        likelihood = log_likelihood(head, hidden, drawn.original.flatten())
        total = copy_or_predict(gate, likelihood, kept).masked_fill(~real, 0).sum()
        logs = {
            "acc/mlm": (guessed, batch.counts["mlm"]),
            "acc/copy": ((((gate > 0) == kept) & real).sum(), count),
        }
        answers = {"copy": kept.long().masked_fill(~real, IGNORE)}
        terms = {"mlm": Term(own), "all_tokens_mlm": Term(-total)}
        return Output(terms, logs, answers=answers)


def copy_or_predict(gate: Tensor, likelihood: Tensor, kept: Tensor) -> Tensor:
    """`log(c [kept] + (1 - c) p)` for logits of c and log p, all [P]."""
    known = F.logsigmoid(-gate) + likelihood
    return known.where(~kept, F.logsigmoid(gate).logaddexp(known))
