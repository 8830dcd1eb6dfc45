"""Replace MLM (Clark et al., 2020, sec. 3.4): masked language modelling with samples of
a generator instead of masks.
"""

from __future__ import annotations

from dataclasses import replace

from plmctl.core.batch import Batch
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.ask import ask
from plmctl.objectives.base import Facts, Objective, Output, Term
from plmctl.objectives.generator import Generator


@part_of("objective")
class ReplaceMLM(Objective):
    """`mean_i - log p_G(x_i | masked) + mean_i - log p(x_i | text with G's samples)`, both over
    targets.mlm.

    (Clark et al., 2020, arXiv:2003.10555, sec. 3.4: it shows how much of ELECTRA's gain is that
    [MASK] is never seen in fine-tuning.) Differs: the paper gives no weights; here both are 1.
    """

    facts = Facts(
        needs=frozenset({"text", "targets.mlm"}),
        heads=frozenset({"mlm"}),
        terms=frozenset({"mlm", "replace_mlm"}),
        generator_terms=frozenset({"mlm"}),
    )

    def __init__(self, *, generator: Generator) -> None:
        super().__init__()
        self.generator = generator
        self.facts = replace(self.facts, needs=self.facts.needs | generator.backbone.needs)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"mlm": batch.counts["mlm"], "replace_mlm": batch.counts["mlm"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        drawn, count = self.generator(batch), batch.counts["mlm"]
        own, guessed = self.generator.head.loss(drawn.features, batch.targets["mlm"].ids)
        output = ask(model, drawn.batch, "mlm", term="replace_mlm")
        return Output(
            {"mlm": Term(own), **output.terms}, {"acc/mlm": (guessed, count), **output.logs}
        )
