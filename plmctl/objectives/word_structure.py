"""The word structural objective (Wang et al., 2020, StructBERT): the model restores the order of
shuffled trigrams.
"""

from __future__ import annotations

from plmctl.core.batch import Batch
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.ask import ask
from plmctl.objectives.base import Facts, Objective, Output


@part_of("objective")
class WordStructure(Objective):
    """`- sum over shuffled positions of log p(original token | shuffled row)`, predicted by the
    head of masked tokens.

    (Wang et al., 2020, arXiv:1908.04577, sec. 2.2.1: trained jointly with MLM, with equal weight.)
    Differs: the paper does not state the positions of the mean; here it is over the shuffled
    positions alone, separate from MLM's own mean.
    """

    facts = Facts(
        needs=frozenset({"text", "targets.shuffle"}),
        heads=frozenset({"mlm"}),
        terms=frozenset({"shuffle"}),
    )

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"shuffle": batch.counts["shuffle"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        return ask(model, batch, "shuffle", head="mlm", state=state)
