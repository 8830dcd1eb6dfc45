"""KEPLER (Wang et al., 2021): links between entities, predicted from their descriptions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.batch import Batch
from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Objective, Output, Term

TEXTS = 4  # head, tail, another entity for the head, another one for the tail


@part_of("objective")
class Kepler(Objective):
    """`-1/2 [log sigmoid(s(h, r, t)) + 1/2 sum log sigmoid(-s)]` of a triple, the sum over it with
    another head and with another tail; `s = gamma - ||h + r - t||` (Wang et al., 2021,
    arXiv:1911.06136, eq. 2 and 3; THU-KEG/KEPLER, criterions/MLMetKE.py: equal weights).

    h and t are the states of the first token of descriptions. `r` is a row of a table, at first
    uniform in -(gamma + 2) / W to (gamma + 2) / W. Logged: `acc/kepler`, how often the right triple
    has a higher score than with another head or tail; `mrr`, the mean of 1 / rank of the right tail
    among all tails of the micro-batch, ties averaged.

    Args:
        width: The width of the states.
        relations: The number of relations.
        gamma: the distance at which a triple is as likely as not.
    """

    facts = Facts(
        needs=frozenset({"text", "anchors", "values.relation"}),
        terms=frozenset({"kepler"}),
        asks_row=True,
        measures=frozenset({"mrr"}),
    )

    def __init__(self, *, width: int, relations: Count, gamma: Amount = 4.0) -> None:
        super().__init__()
        self.gamma = gamma
        self.relation = nn.Embedding(relations, width)
        bound = (gamma + 2) / width
        nn.init.uniform_(self.relation.weight, -bound, bound)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"kepler": batch.counts["rows"]}

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        numbers, real = batch.values["relation"], batch.key >= 0
        if len(numbers) and (largest := int(numbers.max())) >= self.relation.num_embeddings:
            what = f"relation {largest}, but there are {self.relation.num_embeddings}"
            raise DataError(what, fix=f"objective.kepler.relations={largest + 1}, or more")
        assert batch.anchors is not None
        states = model(batch).gather_anchors(batch.anchors)
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        head, tail, other_head, other_tail = wide.view(-1, TEXTS, wide.shape[-1]).unbind(1)
        relation = self.relation(numbers)
        right = self._score(head + relation, tail)
        wrong = torch.stack(
            [self._score(other_head + relation, tail), self._score(head + relation, other_tail)]
        )  # [2, B]
        loss = -0.5 * (F.logsigmoid(right) + F.logsigmoid(-wrong).mean(0))
        count = batch.counts["rows"]
        logs: dict[str, tuple[Tensor, int | Tensor]] = {
            "acc/kepler": (((right > wrong) & real).sum() / 2, count),
            "mrr": (self._rank(head + relation, tail, real), count),
        }
        return Output({"kepler": Term((loss * real).sum())}, logs)

    def _score(self, question: Tensor, tail: Tensor) -> Tensor:
        """[B] of questions h + r [B, W] and tails [B, W]."""
        return self.gamma - torch.linalg.vector_norm(question - tail, dim=-1)

    @torch.no_grad()
    def _rank(self, question: Tensor, tail: Tensor, real: Tensor) -> Tensor:
        """[] the sum of 1 / rank of each tail among those of all real rows."""
        with torch.autocast(question.device.type, enabled=False):
            scores = -torch.linalg.vector_norm(question[:, None] - tail, dim=-1)  # [B, B]
        scores = scores.masked_fill(~real, -torch.inf)
        own = scores.diagonal()[:, None]
        rank = 1 + (scores > own).sum(1) + ((scores == own).sum(1) - 1) / 2
        return (real / rank.clamp(min=1)).sum()
