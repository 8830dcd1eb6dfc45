"""The objective of a batch of triples against a loop, its batches, and what training learns."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.core.errors import DataError
from plmctl.graph.batches import TripleBatches
from plmctl.graph.losses.base import GraphLoss
from plmctl.graph.losses.k_vs_all import KVsAll
from plmctl.graph.losses.margin import Margin
from plmctl.graph.losses.one_vs_all import OneVsAll
from plmctl.graph.losses.self_adversarial import SelfAdversarial
from plmctl.graph.objective import LinkPrediction
from plmctl.graph.penalties.power import Power
from plmctl.graph.scores.base import Score
from plmctl.graph.scores.complex import ComplEx
from plmctl.graph.scores.transe import TransE
from plmctl.knowledge.graph import HEAD, RELATION, TAIL, KnowledgeGraph, Side
from plmctl.models.base import Model
from tests.graph.tiny_graph import E, make_graph, make_tables

GRAPH = make_graph()
TRAIN = GRAPH.splits["train"]


def batches(loss: GraphLoss | None = None, **settings: int) -> TripleBatches:
    return TripleBatches(GRAPH, loss or OneVsAll(), **{"batch_size": 4, **settings})


@pytest.mark.parametrize("reciprocal", [False, True])
def test_a_triple_is_asked_for_head_and_tail(reciprocal: bool) -> None:
    tables = make_tables(ComplEx(), reciprocal=reciprocal)
    model = Model(backbone=tables, heads={})
    objective = LinkPrediction(OneVsAll(), penalty=Power(weight=0.3, power=3))
    batch = batches().make(np.arange(3), 0)
    output = objective(model, batch)
    link, cost = 0.0, 0.0
    for h, r, t in TRAIN[:3].tolist():
        inverse = r + 3 if reciprocal else r
        for side, known, answer, own in (("tail", h, t, r), ("head", t, h, inverse)):
            scores = tables.rank_scores(side, torch.tensor([known]), torch.tensor([r]))
            link -= scores.log_softmax(1)[0, answer].item()
            for vector in (tables.entity[known], tables.entity[answer], tables.relation[own]):
                cost += (tables.score.moduli(vector) ** 3).sum().item()
    assert output.terms["link"].total.item() == pytest.approx(link)
    assert output.terms["penalty"].total.item() == pytest.approx(cost)
    assert output.terms["penalty"].weight == 0.3
    assert objective.counts(batch) == {"link": 6, "penalty": 6}


def test_drawn_entities_stand_in_place_of_the_right_one() -> None:
    tables = make_tables(TransE(norm=1))
    loss = Margin(gamma=2.0, negatives=3)
    batch = batches(loss).make(np.arange(4), 0)
    output = LinkPrediction(loss)(Model(backbone=tables, heads={}), batch)

    vectors, relations = tables.entity.detach(), tables.relation.detach()

    def distance(h: int, r: int, t: int) -> float:
        return float((vectors[h] + relations[r] - vectors[t]).abs().sum())

    expected = 0.0
    for row, (h, r, t) in enumerate(TRAIN[:4].tolist()):
        right = distance(h, r, t)
        for other in batch.values["drawn_tail"][row].tolist():
            expected += max(0.0, 2 + right - distance(h, r, other)) / 3
        for other in batch.values["drawn_head"][row].tolist():
            expected += max(0.0, 2 + right - distance(other, r, t)) / 3
    assert output.terms["link"].total.item() == pytest.approx(expected)


def test_one_side_alone() -> None:
    tables = make_tables(ComplEx())
    model, batch = Model(backbone=tables, heads={}), batches().make(np.arange(3), 0)
    losses = {
        sides: LinkPrediction(OneVsAll(), sides=sides)(model, batch).terms["link"].total.item()
        for sides in (("head",), ("tail",), ("head", "tail"))
    }
    assert losses["head",] + losses["tail",] == pytest.approx(losses["head", "tail"])
    assert LinkPrediction(OneVsAll(), sides=("head",)).counts(batch) == {"link": 3}


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("score", [ComplEx(), TransE(norm=1)])
def test_a_triple_is_asked_for_its_relation(score: Score, reciprocal: bool, grouped: bool) -> None:
    """Chen et al., 2021, eq. 4; with reciprocal relations the inverse triple is one of its own."""
    tables = make_tables(score, reciprocal=reciprocal)
    model, loss = Model(backbone=tables, heads={}), OneVsAll(grouped=grouped)
    source = batches(loss, batch_size=len(TRAIN))
    batch = source.make(np.arange(len(TRAIN)), 0) if not grouped else next(source)[0]
    output = LinkPrediction(loss, relation_weight=4.0)(model, batch)

    expected = 0.0
    for h, r, t in TRAIN.tolist():
        for head, right, tail in ((h, r, t), (t, r + 3, h) if reciprocal else (h, r, t)):
            start, end = tables.entity[head], tables.entity[tail]
            asked = [score.ask_tail(start, relation) for relation in tables.relation]
            scores = torch.stack([score.compare(question, end) for question in asked])
            expected -= scores.log_softmax(0)[right].item()
    assert output.terms["relation"].total.item() == pytest.approx(expected)
    assert output.terms["relation"].weight == 4.0
    asked = LinkPrediction(loss, relation_weight=4.0).counts(batch)
    assert asked == {"link": 2 * len(TRAIN), "relation": 2 * len(TRAIN)}


def test_dropout_is_for_training_alone() -> None:
    model, batch = Model(backbone=make_tables(ComplEx()), heads={}), batches().make(np.arange(3), 0)
    objective = LinkPrediction(OneVsAll(), dropout=0.5)
    losses = {objective(model, batch).terms["link"].total.item() for _ in range(3)}
    assert len(losses) == 3
    objective.eval()
    whole = LinkPrediction(OneVsAll())(model, batch).terms["link"].total.item()
    assert objective(model, batch).terms["link"].total.item() == pytest.approx(whole)


def test_an_epoch_has_every_triple_once() -> None:
    source = batches()
    for _ in range(2):
        rows = [next(source)[0] for _ in range(source.updates_per_epoch)]
        seen = Counter(int(key) for batch in rows for key in batch.key)
        assert seen == Counter(range(len(TRAIN)))
        triples = [
            torch.stack([batch.values[name] for name in ("head", "relation", "tail")], 1)
            for batch in rows
        ]
        expected = TRAIN[torch.cat([batch.key for batch in rows]).numpy()]
        assert np.array_equal(torch.cat(triples).numpy(), expected)


def test_grouped_triples_of_a_question_stand_together() -> None:
    source = batches(OneVsAll(grouped=True))
    orders = []
    for _ in range(2):
        rows = [next(source)[0] for _ in range(source.updates_per_epoch)]
        for number, (known, asked) in enumerate(((TAIL, HEAD), (HEAD, TAIL))):
            triples = np.stack(
                [
                    torch.cat([batch.values[name][number] for batch in rows]).numpy()
                    for name in ("head", "relation", "tail")
                ],
                axis=1,
            )
            assert Counter(map(tuple, triples.tolist())) == Counter(map(tuple, TRAIN.tolist()))
            questions = triples[:, [known, RELATION]]
            changes = 1 + int((questions[1:] != questions[:-1]).any(1).sum())
            assert changes == len(np.unique(questions, axis=0)) < len(TRAIN)
            orders.append(triples[:, asked].tolist())
    assert orders[0] != orders[2]  # another epoch, another order


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("sides", [("tail",), ("head", "tail")])
def test_groups_change_no_loss_of_an_epoch(sides: tuple[Side, ...], reciprocal: bool) -> None:
    found = []
    for grouped in (False, True):
        tables = make_tables(ComplEx(), reciprocal=reciprocal)
        model, loss = Model(backbone=tables, heads={}), OneVsAll(grouped=grouped)
        objective = LinkPrediction(loss, sides=sides, penalty=Power(weight=0.3, power=3))
        source = TripleBatches(GRAPH, loss, batch_size=4, sides=sides)
        link, cost = torch.zeros(()), torch.zeros(())
        for _ in range(source.updates_per_epoch):
            batch = next(source)[0]
            terms = objective(model, batch).terms
            assert objective.counts(batch)["link"] == len(sides) * len(batch.key)
            link, cost = link + terms["link"].total, cost + terms["penalty"].total
        (link + cost).backward()
        found.append((link.detach(), cost.detach(), tables.entity.grad, tables.relation.grad))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


CUT: list[GraphLoss] = [
    OneVsAll(),
    OneVsAll(grouped=True),
    KVsAll(),
    Margin(gamma=2.0, negatives=3),
    SelfAdversarial(gamma=2.0, temperature=1.0, negatives=3),
]


@pytest.mark.parametrize("loss", CUT, ids=lambda loss: type(loss).__name__)
def test_an_epoch_is_the_same_in_other_pieces(loss: GraphLoss) -> None:
    """One process and one pass, three processes, and micro-batches of a triple; a process without a
    triple only counts the losses of others.
    """
    objective = LinkPrediction(loss, penalty=Power(weight=0.3, power=3))
    found: list[list[torch.Tensor | None]] = []
    for world, micro in ((1, None), (3, None), (3, 1)):
        tables = make_tables(ComplEx())
        model = Model(backbone=tables, heads={})
        ranks = [
            TripleBatches(
                GRAPH, loss, batch_size=len(TRAIN) - 1, micro_batch_size=micro, world=world, rank=r
            )
            for r in range(world)
        ]
        spare = 0
        for _ in range(ranks[0].updates_per_epoch):
            for batch in [each for rank in ranks for each in next(rank)]:
                spare += batch.spare
                if not batch.spare:
                    terms = objective(model, batch).terms.values()
                    torch.stack([term.weight * term.total for term in terms]).sum().backward()
        assert spare == world - 1, "of the last triple alone"
        found.append([tables.entity.grad, tables.relation.grad])
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


def test_a_question_of_a_group_is_asked_once() -> None:
    asked = []

    class Counted(OneVsAll):
        def total_of_groups(
            self, score: Any, question: Any, table: Any, answer: Any, row: Any
        ) -> Any:
            asked.append((len(question), len(answer)))
            return super().total_of_groups(score, question, table, answer, row)

    loss = Counted(grouped=True)
    source = TripleBatches(GRAPH, loss, batch_size=len(TRAIN))
    LinkPrediction(loss)(Model(backbone=make_tables(ComplEx()), heads={}), next(source)[0])
    pairs = [len(np.unique(TRAIN[:, [known, RELATION]], axis=0)) for known in (HEAD, TAIL)]
    assert asked == [(sum(pairs), 2 * len(TRAIN))]
    assert sum(pairs) < 2 * len(TRAIN)


@pytest.mark.parametrize("grouped", [False, True])
def test_processes_and_micro_batches_share_an_update(grouped: bool) -> None:
    loss = OneVsAll(grouped=True) if grouped else Margin(gamma=1, negatives=2)
    whole = next(batches(loss, batch_size=6))[0]
    parts = [
        batch
        for rank in range(2)
        for batch in next(batches(loss, batch_size=6, micro_batch_size=2, world=2, rank=rank))
    ]
    assert [len(part.key) for part in parts] == [2, 1, 2, 1]
    for name in whole.values:
        joined = torch.cat([part.values[name] for part in parts], dim=int(grouped))
        assert torch.equal(joined, whole.values[name])


def test_a_source_goes_on_where_it_was() -> None:
    first, second = batches(seed=3), batches(seed=3)
    for _ in range(5):
        next(first)
    second.load_state_dict(first.state_dict())
    assert torch.equal(next(first)[0].key, next(second)[0].key)
    other = TripleBatches(make_graph(seed=1), OneVsAll(), batch_size=4, seed=3)
    with pytest.raises(DataError, match="other triples"):
        other.load_state_dict(first.state_dict())


def test_drawn_entities_are_uniform_and_filtered_ones_are_no_answers() -> None:
    true = {tuple(triple) for triple in TRAIN.tolist()}
    counts: Counter[int] = Counter()
    for filtered in (False, True):
        source = batches(Margin(gamma=1, negatives=400, filtered=filtered), batch_size=len(TRAIN))
        batch, wrong = next(source)[0], 0
        for row, (h, r, t) in enumerate(TRAIN[batch.key.numpy()].tolist()):
            tails, heads = (
                batch.values[f"drawn_{side}"][row].tolist() for side in ("tail", "head")
            )
            counts.update(tails if not filtered else [])
            wrong += sum((h, r, other) in true for other in tails)
            wrong += sum((other, r, t) in true for other in heads)
        assert (wrong > 0) != filtered
    total = sum(counts.values())
    assert set(counts) == set(range(E))
    assert all(abs(n - total / E) < 5 * (total / E) ** 0.5 for n in counts.values())


def test_known_answers_stand_in_the_batch() -> None:
    batch = batches(KVsAll()).make(np.arange(5), 0)
    for side, (known, asked) in (("tail", (0, 2)), ("head", (2, 0))):
        expected = {
            (row, int(other[asked]))
            for row, triple in enumerate(TRAIN[:5])
            for other in TRAIN
            if other[known] == triple[known] and other[1] == triple[1]
        }
        pairs = [tuple(pair) for pair in batch.spans[f"known_{side}"].tolist()]
        assert len(pairs) == len(set(pairs))
        assert set(pairs) == expected


def test_a_graph_is_learned_by_heart() -> None:
    """Every score can rank the triples of a small graph first."""
    tables = make_tables(ComplEx(), reciprocal=True).float()
    model, objective = Model(backbone=tables, heads={}), LinkPrediction(OneVsAll())
    graph = KnowledgeGraph(GRAPH.entities, GRAPH.relations, {"train": TRAIN})
    source = TripleBatches(graph, OneVsAll(), batch_size=len(TRAIN))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.3)
    first = last = 0.0
    for step in range(60):
        loss = objective(model, next(source)[0]).terms["link"].total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first, last = first or loss.item(), loss.item()
        assert step == 0 or last < 2 * first
    assert last < first / 3
