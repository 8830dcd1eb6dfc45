"""Tags of hidden words (Ke et al., 2020, SentiLARE): their polarity, their part of speech, the
rating of the text.
"""

from __future__ import annotations

from dataclasses import replace

from plmctl.core.batch import Batch
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.ask import ask
from plmctl.objectives.base import Facts, Objective, Output


@part_of("objective")
class WordTags(Objective):
    """`- sum over positions of targets.<target> of log p(tag | row)`, by the head of the same name.

    (Ke et al., 2020, arXiv:1911.02493, sec. 3.3, eqs. 6 to 8: all losses with weight 1.) A batch
    without such positions has no term.
    """

    holds_cells = True
    facts = Facts(needs=frozenset({"text"}))

    def __init__(self, *, target: str) -> None:
        super().__init__()
        self.target = target
        needs = self.facts.needs | {f"targets.{target}"}
        names = frozenset({target})
        self.facts = replace(self.facts, needs=needs, heads=names, terms=names)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.target: batch.counts[self.target]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        if not batch.counts[self.target]:
            return Output({})
        answers = {self.target: batch.targets[self.target].ids}
        return replace(ask(model, batch, self.target, state=state), answers=answers)
