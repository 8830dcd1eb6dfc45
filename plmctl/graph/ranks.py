"""Ranks of the right answers among all entities, and the scores made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plmctl.graph.tables import GraphTables
from plmctl.knowledge.graph import HEAD, KINDS, RELATION, SIDES, TAIL, Answers, KnowledgeGraph, Side

HITS = (1, 3, 10)


@dataclass(frozen=True)
class Ranks:
    """The ranks of the right answers of triples, from 1, for each side.

    Ties count half: `1 + entities with a higher score + half of the others with the same score`,
    the mean of the best and the worst rank. Constant scores are then no good answer (Sun et al.,
    2020, arXiv:1911.03903).

    Args:
        filtered: {side: float64 [n]} other known answers left out (Bordes et al., 2013, sec. 4.2).
        raw: {side: float64 [n]} among all entities.
        relation: int64 [n] of each triple.
    """

    filtered: Mapping[Side, np.ndarray]
    raw: Mapping[Side, np.ndarray]
    relation: np.ndarray

    def summarize(self) -> dict[str, float]:
        """Filtered mr, mrr and hits of all sides together."""
        return describe(np.concatenate(list(self.filtered.values())))

    def tabulate(self, kinds: np.ndarray) -> dict[str, float]:
        """All scores: filtered and raw, of all sides and of each, and by the kind of relation.

        Args:
            kinds: int64 [relations] as `KnowledgeGraph.kinds` says.
        """
        scores = self.summarize()
        scores |= prefix("raw", describe(np.concatenate(list(self.raw.values()))))
        for side, ranks in self.filtered.items():
            scores |= prefix(side, describe(ranks))
        for number, kind in enumerate(KINDS):
            own = kinds[self.relation] == number
            if not own.any():
                continue
            scores[f"{kind}/triples"] = int(own.sum())
            for side, ranks in self.filtered.items():
                named = prefix(f"{kind}/{side}", describe(ranks[own]))
                scores |= {name: named[name] for name in named if name.endswith(("mrr", "@10"))}
        return scores


def describe(ranks: np.ndarray) -> dict[str, float]:
    """{"mrr": mean of 1 / rank, "hits@k": share of ranks of k or less, "mr": mean rank}."""
    scores = {"mrr": float((1 / ranks).mean())}
    scores |= {f"hits@{k}": float((ranks <= k).mean()) for k in HITS}
    return {**scores, "mr": float(ranks.mean())}


def prefix(name: str, scores: Mapping[str, float]) -> dict[str, float]:
    """`scores` by names such as `raw/mrr`."""
    return {f"{name}/{key}": value for key, value in scores.items()}


@torch.no_grad()
def rank(
    tables: GraphTables,
    triples: np.ndarray,
    graph: KnowledgeGraph,
    *,
    sides: Sequence[Side] = SIDES,
    batch_size: int = 128,
) -> Ranks:
    """Rank the right head and the right tail of each triple, or those of `sides` alone.

    Args:
        tables: the vectors, and their score.
        triples: int64 [n, 3].
        graph: The graph whose triples, of all splits, are the known answers.
        sides: The sides that are predicted.
    """
    raw: dict[Side, np.ndarray] = {}
    filtered: dict[Side, np.ndarray] = {}
    for side in sides:
        ranks = list(_rank_side(tables, triples, graph, side, batch_size))
        raw[side] = np.concatenate([first for first, _ in ranks] or [np.empty(0)])
        filtered[side] = np.concatenate([second for _, second in ranks] or [np.empty(0)])
    return Ranks(filtered, raw, triples[:, RELATION])


def _rank_side(
    tables: GraphTables, triples: np.ndarray, graph: KnowledgeGraph, side: Side, batch_size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(raw, filtered) ranks of a few triples at a time."""
    device = tables.entity.device
    sizes = {"entities": len(graph.entities), "relations": len(graph.relations)}
    answers = Answers(graph.triples, side, **sizes)
    known_column, asked_column = (HEAD, TAIL) if side == "tail" else (TAIL, HEAD)
    for at in range(0, len(triples), batch_size):
        some = triples[at : at + batch_size]
        known, relation = some[:, known_column], some[:, RELATION]
        row, entity = (torch.from_numpy(x).to(device) for x in answers.find(known, relation))
        asked = torch.from_numpy(some).to(device)
        answer = asked[:, asked_column, None]  # [b, 1]
        with torch.autocast(device.type, enabled=False):  # in bf16, most scores would tie
            scores = tables.rank_scores(side, asked[:, known_column], asked[:, RELATION])
        right = scores.gather(1, answer)
        raw = place(scores, right)
        scores[row, entity] = -torch.inf
        scores.scatter_(1, answer, right)
        yield raw.cpu().numpy(), place(scores, right).cpu().numpy()


def place(scores: Tensor, right: Tensor) -> Tensor:
    """float64 [B] ranks of the scores right [B, 1] among scores [B, E], one of which is it.

    A score that is no number counts as higher, so that a broken model is not the best.
    """
    lower, equal = (scores < right).sum(1), (scores == right).sum(1)
    higher = scores.shape[1] - lower - equal
    return 1 + higher.double() + (equal - 1).clamp(min=0).double() / 2
