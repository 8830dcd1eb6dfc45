"""Supersense prediction (Levine et al., 2020, SenseBERT): which classes of WordNet may a masked
word be of?
"""

from __future__ import annotations

import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.parts import part_of
from plmctl.core.values import Number
from plmctl.heads.sense import SenseLosses
from plmctl.models.base import Hidden, Model
from plmctl.objectives.base import Facts, Objective, Output, Term


@part_of("objective")
class Sense(Objective):
    """`- sum over words of log sum_{s in A(w)} p(s) + (1 / |A(w)|) sum_{s in A(w)} log p(s)`, A(w)
    the senses that the word may have, p from the mean of the states of its tokens.

    The words are `spans.senses`. (Levine et al., 2020, arXiv:1908.05646, sec. 3.2, eqs. 4, 6 and
    7: the sum of both losses, added to those of masked tokens and of segments; the mean of states:
    sec. 3.4, "average embedding".)

    Args:
        spread: weight of the second loss, which keeps the senses of a word apart from one winner.
    """

    facts = Facts(
        needs=frozenset({"text", "targets.mlm", "spans.senses"}),
        heads=frozenset({"sense"}),
        terms=frozenset({"sense", "sense_spread"}),
    )

    def __init__(self, *, spread: Number = 1.0) -> None:
        super().__init__()
        self.spread = spread

    def counts(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys(("sense", "sense_spread"), len(batch.spans.get("senses", ())))

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        count, hidden = self.counts(batch)["sense"], model(batch, state)
        if not count:
            return Output({}, state=hidden.state)
        spans = batch.spans["senses"]
        losses: SenseLosses = model.heads["sense"].loss(  # type: ignore[operator]
            average_words(hidden, spans), spans[:, 3]
        )
        terms = {"sense": Term(losses.allowed), "sense_spread": Term(losses.spread, self.spread)}
        return Output(terms, {"acc/sense": (losses.right, count)}, hidden.state)


def average_words(hidden: Hidden, spans: Tensor) -> Tensor:
    """[m, W] the mean state of each of `spans [m, 3+]` = row, start, length."""
    row, start, length = spans[:, :3].unbind(1)
    if bool((length == 1).all()):
        return hidden.last[row, start]
    step = torch.arange(int(length.max()), device=spans.device)  # [L]
    inside = step < length[:, None]  # [m, L]
    column = torch.where(inside, start[:, None] + step, start[:, None])
    states = hidden.last[row[:, None], column] * inside[..., None]  # [m, L, W]
    return states.sum(1) / length[:, None].to(states.dtype)
