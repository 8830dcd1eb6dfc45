"""Adversarial ELECTRA (Clark et al., 2020, fig. 3 right): the generator is rewarded for
replacements that the model does not detect.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.objectives.electra import Electra
from plmctl.objectives.generator import Drawn, Generator, log_likelihood, wide
from plmctl.objectives.rtd import detect


@part_of("objective")
class Adversarial(Electra):
    """ELECTRA whose generator maximises the model's loss by REINFORCE (Williams, 1992) instead of
    predicting tokens.

    Reward R_i = the model's loss at position i of targets.mlm; policy loss `- sum_i (R_i - b_i) log
    p_G(sample_i)`; baseline `b_i = - log sigmoid(w h_i)`, learned by cross-entropy of sigmoid(w
    h_i) with exp(-R_i), the model's chance of being right (Clark et al., 2020, arXiv:2003.10555,
    sec. 3.3 and appendix F). The paper leaves some choices open. Here a sample's effect on the loss
    at other positions is neglected, and the baseline sends no gradient into the generator's states.
    Policy and baseline are means over the masked positions, with the weights `policy_weight` and 1.
    """

    facts = replace(
        Electra.facts,
        terms=frozenset({"policy", "baseline", "rtd"}),
        generator_terms=frozenset({"policy", "baseline", "mlm"}),
    )

    def __init__(
        self,
        *,
        generator: Generator,
        rtd_weight: float = 50.0,
        all_tokens: bool = True,
        policy_weight: float = 1.0,
    ) -> None:
        super().__init__(generator=generator, rtd_weight=rtd_weight, all_tokens=all_tokens)
        self.policy_weight = policy_weight
        self.baseline = nn.Linear(generator.backbone.width, 1)

    def counts(self, batch: Batch) -> dict[str, int]:
        masked = batch.counts["mlm"]
        return {"policy": masked, "baseline": masked, "rtd": super().counts(batch)["rtd"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        drawn = self.generator(batch)
        logits, replaced, compared = self.score_tokens(model, drawn)
        found = detect(logits, replaced, compared, self.counts(batch)["rtd"], self.rtd_weight)
        reward = F.binary_cross_entropy_with_logits(
            wide(logits.detach()), replaced.to(wide(logits).dtype), reduction="none"
        )
        at = drawn.batch.targets["mlm"].index if self.all_tokens else slice(None)
        terms = {**found.terms, **self.policy(drawn, reward[at])}
        with torch.no_grad():
            right = self.generator.head.loss(drawn.features, drawn.batch.targets["mlm"].ids)[1]
        logs = {**found.logs, "acc/mlm": (right, batch.counts["mlm"])}
        return Output(terms, logs, answers=found.answers)

    def policy(self, drawn: Drawn, reward: Tensor) -> dict[str, Term]:
        """The generator's two losses for `reward [P]` at the positions of targets.mlm."""
        masked = drawn.batch.targets["mlm"].ids != IGNORE
        guess = wide(self.baseline(drawn.features.detach())[:, 0])
        advantage = (reward - F.softplus(-guess)).detach()
        likelihood = log_likelihood(
            self.generator.head, drawn.features, drawn.samples, self.generator.temperature
        )
        fit = F.binary_cross_entropy_with_logits(guess, (-reward).exp(), reduction="none")
        return {
            "policy": Term(
                -(advantage * likelihood).masked_fill(~masked, 0).sum(), self.policy_weight
            ),
            "baseline": Term(fit.masked_fill(~masked, 0).sum()),
        }
