"""Relation discrimination (ERICA; Qin et al., 2021): pairs of entities with the same relation are
near each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Whole
from plmctl.knowledge.facts import FactTable
from plmctl.knowledge.known import TextSample
from plmctl.models.base import Model
from plmctl.objectives.base import Contrast, Facts, Objective, Output, Term
from plmctl.objectives.contrast import multiply
from plmctl.objectives.mentions import Mentions, seed_of


@dataclass(frozen=True)
class Tuples:
    """The pairs of entities to compare, each with a relation, or -1 without one.

    Args:
        head: int64 [n] entities, tail: int64 [n], relation: int64 [n].
        anchor: int64 [a] tuples that have a positive one, int64 [a] `positive`.
        negative: bool [a, n] the tuples that an anchor is told apart from.
    """

    head: np.ndarray
    tail: np.ndarray
    relation: np.ndarray
    anchor: np.ndarray
    positive: np.ndarray
    negative: np.ndarray


@part_of("objective")
class RelationContrast(Objective):
    """`- log [exp(s_AB / t) / (exp(s_AB / t) + sum_C exp(s_AC / t))]`, s the cosine of `[e_head;
    e_tail]` of two tuples. B is a tuple with the relation of A; C are tuples with another one, or
    with none (Qin et al., 2021, arXiv:2012.15022, eq. 4; thunlp/ERICA, NTXentLoss_doc).

    Tuples are pairs of entities of one document of the update, e the mean over mentions
    (objectives/mentions.py); a pair with several relations is a tuple for each. Those of a relation
    are paired at random, each with one other; tuples of one document that share head or tail are
    neither positive nor negative for each other. The mean over tuples that have another one.

    Args:
        facts: the relations that hold.
        temperature: t.
        negatives: tuples C of an A, drawn, at most.
        unrelated: tuples without a relation of a document, drawn, at most.
        seed: The seed of the draws, together with the rows of the batch.
    """

    facts = Facts(
        needs=frozenset({"text", "spans.entity"}),
        terms=frozenset({"relation_contrast"}),
        least_rows=2,
        contrasts=True,
        measures=frozenset({"relation_tuples"}),
    )

    def __init__(
        self,
        *,
        facts: FactTable,
        temperature: float,
        negatives: Count = 64,
        unrelated: Whole = 32,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise ConfigError("temperature", temperature, "above 0", fix="temperature=0.05")
        self.table, self.temperature, self.seed = facts, temperature, seed
        self.negatives, self.unrelated = negatives, unrelated

    def describe_known(self, text: TextSample) -> str:
        """How many pairs of entities of a text have a fact."""
        return self.table.describe_known(text)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"relation_contrast": len(self.draw(batch.key, Mentions.of(batch)).anchor)}

    def draw(self, keys: Tensor, mentions: Mentions) -> Tuples:
        """The tuples of the rows of these keys, and what each is compared with."""
        generator = seed_of(keys, self.seed)
        related, rest = mentions.facts(self.table)
        order = generator.permutation(len(rest))  # the first ones of each document
        document = mentions.document[rest[order, 0]]
        rank = _rank(document)
        rest = rest[order[rank < self.unrelated]]
        head, tail = (np.concatenate([related[:, n], rest[:, n]]) for n in (0, 1))
        relation = np.concatenate([related[:, 2], np.full(len(rest), -1)])
        home = mentions.document[head]
        near = (home[:, None] == home) & (
            (head[:, None] == head) | (tail[:, None] == tail)
        )  # [n, n]; a tuple itself, too
        anchor, positive = _pair(relation[: len(related)], near, generator)
        negative = (relation[anchor][:, None] != relation) & ~near[anchor]
        lot = generator.random(negative.shape)
        kept = np.argsort(np.where(negative, lot, 2.0), axis=1)[:, : self.negatives]
        chosen = np.zeros_like(negative)
        np.put_along_axis(chosen, kept, True, axis=1)
        return Tuples(head, tail, relation, anchor, positive, negative & chosen)

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        mentions, hidden = Mentions.of(batch), model(batch, state)
        document = np.unique(mentions.document, return_inverse=True)[1].reshape(-1)
        ids, numbers = (torch.from_numpy(x).to(batch.key.device) for x in (mentions.ids, document))
        return Contrast(
            self.compare,
            {"entities": mentions.pool(hidden.last)},  # [e, W]
            {"ids": ids, "key": batch.key},
            {"document": numbers},
        ).output("relation_contrast", hidden.state)

    def compare(self, vectors: Mapping[str, Tensor], beside: Mapping[str, Tensor]) -> Output:
        """The loss of all entities of an update."""
        entities, none = vectors["entities"], np.zeros((0, 4), np.int64)
        document, ids = (beside[name].cpu().numpy() for name in ("document", "ids"))
        tuples = self.draw(beside["key"], Mentions(none, none[:, 0], document, ids))
        if not len(tuples.anchor):
            return Output({})
        device = entities.device
        head, tail, anchor, positive = (
            torch.from_numpy(x).to(device)
            for x in (tuples.head, tuples.tail, tuples.anchor, tuples.positive)
        )
        pairs = F.normalize(torch.cat([entities[head], entities[tail]], 1), dim=-1)  # [n, 2 W]
        scores = multiply(pairs[anchor], pairs) / self.temperature  # [a, n]
        seen = torch.from_numpy(tuples.negative).to(device)
        seen[torch.arange(len(anchor), device=device), positive] = True
        scores = scores.masked_fill(~seen, -torch.inf)
        loss = F.cross_entropy(scores, positive, reduction="sum")
        right = (scores.argmax(1) == positive).sum()
        count = len(tuples.anchor)
        related = torch.tensor(float((tuples.relation >= 0).sum()), device=device)
        logs = {"acc/relation_contrast": (right, count), "relation_tuples": (related, 1)}
        return Output({"relation_contrast": Term(loss, count=count)}, logs)


def _rank(groups: np.ndarray) -> np.ndarray:
    """How many of the same group stand before each."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    within = np.arange(len(groups)) - np.repeat(begins, np.diff(begins, append=len(groups)))
    rank = np.empty(len(groups), np.int64)
    rank[order] = within
    return rank


def _pair(
    relation: np.ndarray, near: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """(tuples, the positive one of each): tuples of one relation in random order, two by two. The
    odd one out has no positive, and neither have tuples that are near each other.
    """
    order = generator.permutation(len(relation))
    order = order[np.argsort(relation[order], kind="stable")]
    rank = _rank(relation[order])
    first = np.flatnonzero((rank[:-1] % 2 == 0) & (relation[order[:-1]] == relation[order[1:]]))
    a, b = order[first], order[first + 1]
    fine = ~near[a, b]
    a, b = a[fine], b[fine]
    return np.concatenate([a, b]), np.concatenate([b, a])
