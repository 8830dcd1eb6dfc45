"""The tables of a graph's vectors, as a model that the trainer trains."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from plmctl.core.batch import Batch
from plmctl.graph.scores.base import Score
from plmctl.knowledge.graph import Side
from plmctl.models.base import Backbone


class GraphTables(Backbone):
    """entity [E, W] and relation [R or 2R, W']. With `reciprocal`, the question for a head has a
    relation vector of its own, behind the others. The head is then predicted as a tail (Lacroix et
    al., 2018, arXiv:1806.07297, sec. 4.1).
    """

    needs: frozenset[str] = frozenset()
    uses: frozenset[str] = frozenset()
    num_layers = 0
    max_length = None

    def __init__(
        self,
        score: Score,
        *,
        entities: int,
        relations: int,
        width: int,
        reciprocal: bool,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        score.check_width(width)
        self.score, self.width, self.reciprocal = score, width, reciprocal
        self.relations = relations
        rows = relations * (2 if reciprocal else 1)
        self.entity = nn.Parameter(torch.zeros(entities, width))
        self.relation = nn.Parameter(torch.zeros(rows, score.relation_width(width)))
        if generator is not None:
            score.start(self.entity, self.relation, generator)

    def ask(self, side: Side, known: Tensor, relation: Tensor) -> Tensor:
        """[B, W] the questions for `side`.

        Args:
            side: The side that is predicted.
            known: [B, W] the vectors of the entities that are given.
            relation: [B, W'] those of the relations, by `find_relations`.
        """
        if side == "tail" or self.reciprocal:
            return self.score.ask_tail(known, relation)
        return self.score.ask_head(relation, known)

    def find_relations(self, side: Side, relation: Tensor) -> Tensor:
        """[B] the rows of `self.relation` in questions for `side`."""
        return relation + self.relations if side == "head" and self.reciprocal else relation

    def rank_scores(self, side: Side, known: Tensor, relation: Tensor) -> Tensor:
        """[B, E] the scores of all entities as answers.

        Args:
            side: The side that is predicted.
            known: [B] entities.
            relation: [B] relations.
        """
        vectors = self.relation[self.find_relations(side, relation)]
        return self.score.compare_all(self.ask(side, self.entity[known], vectors), self.entity)

    def parts(self) -> list[object]:
        return [self, self.score]

    def forward(  # type: ignore[override]
        self, batch: Batch, state: object = None, record: Sequence[str] = ()
    ) -> None:
        """Nothing runs without a question."""
        raise NotImplementedError("a graph has no states: its objective asks the tables")
