"""Link prediction: the loss of both questions of each triple."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch
from plmctl.core.fields import Field, Fields
from plmctl.graph.losses.base import FullLoss, GraphLoss, SampledLoss, widen
from plmctl.graph.losses.one_vs_all import OneVsAll
from plmctl.graph.penalties.base import Penalty
from plmctl.graph.tables import GraphTables
from plmctl.knowledge.graph import SIDES, Side
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Objective, Output, Term

LINK, RELATION, PENALTY = "link", "relation", "penalty"


class LinkPrediction(Objective):
    """Asks each triple for its head and for its tail, or for one of them, and for its relation.

    The relation is predicted by a softmax over all relations (Chen et al., 2021, arXiv:2110.02834,
    eq. 4): `-log P(t | h, r) - log P(h | r, t) - 2 w log P(r | h, t)`, or with reciprocal
    relations, `-log P(t | h, r) - w log P(r | h, t)` of a triple and of its inverse.

    Args:
        loss: The loss of a question.
        sides: The sides that are predicted.
        relation_weight: The weight w of the question for the relation, relative to the question for
            an entity; 0: no such question.
        penalty: The penalty that is added to the loss; None: none.
        dropout: share of the numbers of a question's entity and relation that are 0 in training.
    """

    facts = Facts(
        needs=frozenset({"values.head", "values.relation", "values.tail"}),
        terms=frozenset({LINK, RELATION, PENALTY}),
    )
    # head, relation and tail of grouped triples are [sides, B]
    fields: Fields = {  # noqa: RUF012
        "values.head": Field("[B]", "int", "the entity that a triple begins with"),
        "values.relation": Field("[B]", "int", "the relation of a triple"),
        "values.tail": Field("[B]", "int", "the entity that a triple ends with"),
        "values.drawn_head": Field("[B, K]", "int", "entities that replace the head"),
        "values.drawn_tail": Field("[B, K]", "int", "entities that replace the tail"),
        "spans.known_head": Field("[m, 2]", "int", "row and entity: all known heads"),
        "spans.known_tail": Field("[m, 2]", "int", "row and entity: all known tails"),
    }

    def __init__(
        self,
        loss: GraphLoss,
        *,
        sides: Sequence[Side] = SIDES,
        relation_weight: float = 0.0,
        penalty: Penalty | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.relation_weight = relation_weight
        self.loss, self.sides, self.penalty, self.dropout = loss, tuple(sides), penalty, dropout

    def counts(self, batch: Batch) -> dict[str, int]:
        asked = len(batch.key) * len(self.sides)
        terms = {LINK: True, RELATION: self.relation_weight > 0, PENALTY: self.penalty is not None}
        return {term: asked for term, there in terms.items() if there}

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        tables = model.backbone
        assert isinstance(tables, GraphTables)
        sides = len(self.sides)
        # one look-up for all sides: each makes a gradient of the size of the table
        ends = torch.stack([batch.values["head"], batch.values["tail"]])  # [2, B] or [2, sides, B]
        vectors = F.embedding(ends, tables.entity)
        shared = sides if ends.dim() == 2 else 1  # how many sides ask each of them
        ends = ends.view(2, -1, ends.shape[-1]).expand(-1, sides, -1)  # [2, sides, B]
        heads, tails = vectors.view(2, -1, *vectors.shape[-2:]).expand(-1, sides, -1, -1)
        named = batch.values["relation"].expand(sides, -1)  # [sides, B]
        relations = torch.stack(
            [tables.find_relations(s, r) for s, r in zip(self.sides, named, strict=True)]
        )
        of_relations = F.embedding(relations, tables.relation)  # [sides, B, W']
        questions: list[Tensor] = []
        answers: list[Tensor] = []
        rows: list[Tensor] = []
        for number, side in enumerate(self.sides):
            known, answer = (0, 1) if side == "tail" else (1, 0)
            parts = (heads, tails)[known][number], of_relations[number]
            one, row = self._group(ends[known, number], relations[number])
            dropped = (F.dropout(part[one], self.dropout, self.training) for part in parts)
            rows.append(row + sum(len(asked) for asked in questions))
            questions.append(tables.ask(side, *dropped))
            answers.append(ends[answer, number])
        lost = self._lose(tables, torch.cat(questions), torch.cat(answers), torch.cat(rows), batch)
        terms = {LINK: Term(lost)}
        if self.relation_weight > 0:
            wrong = self._lose_relations(tables, heads, tails, relations)
            terms[RELATION] = Term(wrong, self.relation_weight)
        if self.penalty is not None:
            moduli = tables.score.moduli
            cost = sum(self.penalty.total(moduli(end)) for end in vectors) * shared
            cost = cost + self.penalty.total(moduli(of_relations))
            terms[PENALTY] = Term(cost, self.penalty.weight)
        return Output(terms)

    def _group(self, known: Tensor, relation: Tensor) -> tuple[Tensor | slice, Tensor]:
        """([U] a triple of each question, or all; [B] the question of each triple)."""
        every = torch.arange(len(known), device=known.device)
        if not self.loss.grouped:
            return slice(None), every
        pairs, row = torch.stack([known, relation]).unique(dim=1, return_inverse=True)
        return every.new_zeros(pairs.shape[1]).scatter_reduce(0, row, every, "amax"), row

    def _lose(
        self, tables: GraphTables, question: Tensor, answer: Tensor, row: Tensor, batch: Batch
    ) -> Tensor:
        """[] the summed loss of questions [U, W] with answers [S * B], side by side, to `row`."""
        score, entity = tables.score, tables.entity
        if isinstance(self.loss, SampledLoss):
            drawn = torch.cat([batch.values[f"drawn_{side}"] for side in self.sides])  # [S * B, K]
            positive = score.compare(question, F.embedding(answer, entity))
            negative = score.compare(question[:, None], F.embedding(drawn, entity))
            return self.loss.total(positive, negative)
        if isinstance(self.loss, OneVsAll):
            return self.loss.total_of_groups(score, question, entity, answer, row)
        assert isinstance(self.loss, FullLoss)
        return self.loss.total(score, question, entity, answer, self._find_known(batch))

    def _lose_relations(
        self, tables: GraphTables, heads: Tensor, tails: Tensor, relations: Tensor
    ) -> Tensor:
        """[] the summed loss of questions for relations [S, B] between ends [S, B, W]."""
        scores = []
        for number, side in enumerate(self.sides):
            ends = heads[number], tails[number]
            if side == "head" and tables.reciprocal:  # an inverse goes from the tail to the head
                ends = ends[::-1]
            scores.append(tables.score.compare_relations(*ends, tables.relation))
        return F.cross_entropy(widen(torch.cat(scores)), relations.flatten(), reduction="sum")

    def _find_known(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """([m] the question, [m] a known answer to it), if the loss wants them."""
        if not self.loss.known:
            return None
        pairs = [batch.spans[f"known_{side}"] for side in self.sides]
        rows = [pair[:, 0] + number * len(batch.key) for number, pair in enumerate(pairs)]
        return torch.cat(rows), torch.cat([pair[:, 1] for pair in pairs])

    def after_step(self, model: Model, step: int) -> None:
        tables = model.backbone
        assert isinstance(tables, GraphTables)
        tables.score.constrain(tables.entity)
