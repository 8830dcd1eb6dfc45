"""ELECTRA (Clark et al., 2020): a generator fills masks, and the model detects the tokens that it
got wrong.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Objective, Output, Term, Verdicts
from plmctl.objectives.generator import Drawn, Generator, wide
from plmctl.objectives.rtd import detect


@part_of("objective")
class Electra(Objective):
    """`mean_i - log p_G(x_i | masked) + rtd_weight * mean_t - log p_D(replaced_t | text with G's
    samples)`.

    i over targets.mlm, t over every token but padding, special ones included; a token drawn right
    counts as original. No gradient flows from the model into the generator. With `all_tokens=False`
    only targets.mlm count (ELECTRA 15%). (Clark et al., 2020, arXiv:2003.10555, sec. 2 and 3.4, and
    google-research/electra, run_pretraining.py.)
    """

    facts = Facts(
        needs=frozenset({"text", "targets.mlm"}),
        heads=frozenset({"discriminator"}),
        terms=frozenset({"mlm", "rtd"}),
        generator_terms=frozenset({"mlm"}),
    )

    def __init__(
        self, *, generator: Generator, rtd_weight: float = 50.0, all_tokens: bool = True
    ) -> None:
        super().__init__()
        self.generator, self.rtd_weight, self.all_tokens = generator, rtd_weight, all_tokens
        self.facts = replace(
            self.facts,
            needs=self.facts.needs | generator.backbone.needs,
            at_every_token=self.facts.heads if all_tokens else frozenset(),
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        return {
            "mlm": batch.counts["mlm"],
            "rtd": batch.counts["tokens" if self.all_tokens else "mlm"],
        }

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        drawn = self.generator(batch)
        generated, discriminated = self.generate(drawn), self.discriminate(model, drawn)
        return Output(
            {**generated.terms, **discriminated.terms},
            {**generated.logs, **discriminated.logs},
            answers=discriminated.answers,
        )

    def generate(self, drawn: Drawn) -> Output:
        """The generator's loss: it predicts the tokens that were hidden."""
        loss, right = self.generator.head.loss(drawn.features, drawn.batch.targets["mlm"].ids)
        return Output({"mlm": Term(loss)}, {"acc/mlm": (right, drawn.batch.counts["mlm"])})

    def discriminate(self, model: Model, drawn: Drawn) -> Output:
        """The model's loss: it predicts which tokens the generator changed."""
        logits, replaced, compared = self.score_tokens(model, drawn)
        count = self.counts(drawn.batch)["rtd"]
        return detect(logits, replaced, compared, count, self.rtd_weight)

    def judge_tokens(self, model: Model, batch: Batch) -> Verdicts | None:
        drawn = self.generator(batch)
        logits, _, compared = self.score_tokens(model, drawn)
        shares = wide(logits).sigmoid().masked_fill(~compared, torch.nan)
        if not self.all_tokens:
            nowhere = torch.full(batch.text.ids.shape, torch.nan, device=shares.device)
            shares = drawn.batch.targets["mlm"].write_into(nowhere, shares)
        shape = drawn.replaced.shape
        return Verdicts(drawn.batch, drawn.replaced, shares.view(shape), drawn.original)

    def score_tokens(self, model: Model, drawn: Drawn) -> tuple[Tensor, Tensor, Tensor]:
        """(logits, whether replaced, whether it counts), each [B T], or [P] where only the
        positions of targets.mlm count.
        """
        hidden, head = model(drawn.batch), model.heads["discriminator"]
        if self.all_tokens:
            return (
                head(hidden.last).flatten(),
                drawn.replaced.flatten(),
                drawn.batch.text.real.flatten(),
            )
        targets = drawn.batch.targets["mlm"]
        return (
            head(hidden.gather(targets.index)),
            drawn.replaced.flatten()[targets.index],
            targets.ids != IGNORE,
        )
