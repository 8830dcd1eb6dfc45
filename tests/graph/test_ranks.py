"""Ranks and scores against loops, ties, and by kind of relation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from plmctl.graph.ranks import Ranks, describe, place, rank
from plmctl.graph.scores.distmult import DistMult
from plmctl.graph.scores.transe import TransE
from plmctl.knowledge.graph import KINDS, KnowledgeGraph
from tests.graph.tiny_graph import E, make_graph, make_tables


def rank_by_hand(scores: list[float], right: int, leave_out: set[int]) -> float:
    """The mean of the best and the worst place of `right` in a sorted list."""
    others = [s for n, s in enumerate(scores) if n != right and n not in leave_out]
    best = 1 + sum(s > scores[right] for s in others)
    worst = 1 + sum(s >= scores[right] for s in others)
    return (best + worst) / 2


@pytest.mark.parametrize("batch_size", [1, 3, 100])
@pytest.mark.parametrize("reciprocal", [False, True])
def test_ranks_are_those_of_a_loop(batch_size: int, reciprocal: bool) -> None:
    graph = make_graph(triples=60)
    tables = make_tables(DistMult(), reciprocal=reciprocal)
    with torch.no_grad():
        for table in (tables.entity, tables.relation):
            table.copy_((2 * table).round())  # products without rounding, so that equal ones tie
        tables.entity[3] = tables.entity[5]
        tables.entity[1] = tables.entity[5]
    triples = graph.splits["valid"]
    true = {tuple(triple) for triple in graph.triples.tolist()}
    ranks = rank(tables, triples, graph, batch_size=batch_size)
    filtered_differ = tied = 0
    for row, (h, r, t) in enumerate(triples.tolist()):
        for side, known, right in (("tail", h, t), ("head", t, h)):
            scores = tables.rank_scores(side, torch.tensor([known]), torch.tensor([r]))[0].tolist()
            others = {
                e for e in range(E) if ((h, r, e) if side == "tail" else (e, r, t)) in true
            } - {right}
            raw, filtered = rank_by_hand(scores, right, set()), rank_by_hand(scores, right, others)
            assert ranks.raw[side][row] == raw
            assert ranks.filtered[side][row] == filtered
            filtered_differ += raw != filtered
            tied += raw % 1 > 0
    assert filtered_differ > 5
    assert tied >= 2


def test_constant_scores_are_no_good_answer() -> None:
    assert place(torch.zeros(1, 101), torch.zeros(1, 1)).tolist() == [51.0]


def test_what_is_no_number_is_no_good_answer() -> None:
    nothing = torch.full((1, 4), torch.nan)
    assert place(nothing, nothing[:, :1]).item() >= 4
    scores = torch.tensor([[1.0, torch.nan, 2.0]])
    assert place(scores, scores[:, 2:]).tolist() == [2.0]


def test_scores_of_ranks() -> None:
    scores = describe(np.array([1.0, 2.5, 4.0, 20.0]))
    assert scores["mrr"] == pytest.approx((1 + 1 / 2.5 + 1 / 4 + 1 / 20) / 4)
    assert scores["mr"] == pytest.approx(27.5 / 4)
    assert (scores["hits@1"], scores["hits@3"], scores["hits@10"]) == (0.25, 0.5, 0.75)


def test_ranks_do_not_change_under_autocast() -> None:
    graph, tables = make_graph(), make_tables(TransE()).float()
    plain = rank(tables, graph.splits["test"], graph)
    with torch.autocast("cpu", torch.bfloat16):
        again = rank(tables, graph.splits["test"], graph)
    assert np.array_equal(plain.filtered["tail"], again.filtered["tail"])


def test_kinds_of_relations() -> None:
    """TransE's: 1.5 or more on a side are many."""
    triples = [
        *((0, 0, 1), (2, 0, 3)),  # 1-1
        *((0, 1, 1), (0, 1, 2), (3, 1, 4)),  # one head has 2 tails, the other 1: 1.5, 1-N
        *((0, 2, 5), (1, 2, 5), (2, 2, 5)),  # N-1
        *((0, 3, 1), (0, 3, 2), (4, 3, 1), (4, 3, 2)),  # N-N
        *((0, 4, 1), (0, 4, 2), (3, 4, 4), (5, 4, 6)),  # 4 tails of 3 heads: 1-1
    ]
    names = tuple("abcdefg"), tuple("vwxyz")
    graph = KnowledgeGraph(*names, {"train": np.array(triples), "valid": np.array(triples[:3])})
    assert [KINDS[kind] for kind in graph.kinds()] == ["1-1", "1-N", "N-1", "N-N", "1-1"]


def test_scores_by_side_and_kind() -> None:
    ranks = Ranks(
        filtered={"head": np.array([1.0, 4.0, 2.0]), "tail": np.array([2.0, 1.0, 1.0])},
        raw={"head": np.array([2.0, 8.0, 4.0]), "tail": np.array([4.0, 2.0, 2.0])},
        relation=np.array([0, 1, 1]),
    )
    scores = ranks.tabulate(np.array([0, 3]))
    assert scores["mrr"] == pytest.approx((1 + 1 / 4 + 1 / 2 + 1 / 2 + 1 + 1) / 6)
    assert scores["raw/mr"] == pytest.approx(22 / 6)
    assert scores["head/mr"] == pytest.approx(7 / 3)
    assert scores["tail/hits@1"] == pytest.approx(2 / 3)
    assert scores["1-1/triples"] == 1
    assert scores["1-1/head/mrr"] == 1
    assert scores["N-N/head/mrr"] == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert not any(name.startswith("1-N") for name in scores)
