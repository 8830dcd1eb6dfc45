"""Entity and relation discrimination: vectors of entities, both losses against loops in float64,
the two cases that can be worked out by hand.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.knowledge.facts import FactTable
from plmctl.models.base import Hidden
from plmctl.objectives.entity_contrast import EntityContrast
from plmctl.objectives.mentions import Mentions
from plmctl.objectives.relation_contrast import RelationContrast

T = 24


class Given(torch.nn.Module):
    """A model whose states are known."""

    def __init__(self, states: torch.Tensor) -> None:
        super().__init__()
        self.states = states

    def forward(self, batch: Any, state: Any = None, record: Any = frozenset()) -> Hidden:
        return Hidden(self.states)


class Facts(FactTable):
    """Facts that are written in the test."""

    def __init__(self, facts: set[tuple[int, int, int]]) -> None:
        super().__init__()
        self.facts = facts

    def find(self, head: np.ndarray, tail: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = [
            (n, r)
            for n, (h, t) in enumerate(zip(head.tolist(), tail.tolist(), strict=True))
            for a, r, b in sorted(self.facts)
            if (a, b) == (h, t)
        ]
        return tuple(np.array(found, np.int64).reshape(-1, 2).T)  # type: ignore[return-value]


def draw(rows: int = 4, *, documents: bool = False) -> tuple[Batch, torch.Tensor]:
    """Rows with mentions of five entities, some of which are mentioned twice."""
    rng = np.random.default_rng(0)
    spans = []
    for row in range(rows):
        for start in range(1, T - 4, 4):
            spans.append((row, start, int(rng.integers(1, 4)), int(rng.integers(0, 5))))
    tracks = {"document": torch.arange(T).expand(rows, -1) // 12} if documents else {}
    ids = torch.from_numpy(rng.integers(5, 50, (rows, T)))
    batch = Batch(
        torch.arange(rows),
        {"text": Seq(ids, torch.full((rows,), T), tracks)},
        spans={"entity": torch.tensor(spans)},
    )
    generator = torch.Generator().manual_seed(0)
    return batch, torch.randn(rows, T, 6, generator=generator, dtype=torch.float64)


def entities_by_hand(batch: Batch, states: torch.Tensor) -> dict[tuple[int, int, int], np.ndarray]:
    """{(row, document, id): mean of the means of its mentions}."""
    found: dict[tuple[int, int, int], list[np.ndarray]] = {}
    document = batch.text.tracks.get("document")
    for row, start, length, identity in batch.spans["entity"].tolist():
        part = 0 if document is None else int(document[row, start])
        mean = states[row, start : start + length].mean(0).numpy()
        found.setdefault((row, part, identity), []).append(mean)
    return {key: np.mean(means, 0) for key, means in found.items()}


@pytest.mark.parametrize("documents", [False, True])
def test_vectors_of_entities(documents: bool) -> None:
    batch, states = draw(documents=documents)
    mentions, wanted = Mentions.of(batch), entities_by_hand(batch, states)
    pooled = mentions.pool(states).numpy()
    keys = [
        (document // T, document % T, identity)
        for document, identity in zip(
            mentions.document.tolist(), mentions.ids.tolist(), strict=True
        )
    ]
    assert sorted(keys) == sorted(wanted)
    np.testing.assert_allclose(pooled, np.stack([wanted[key] for key in keys]), rtol=1e-12)
    pairs = {tuple(pair) for pair in mentions.pairs().tolist()}
    assert pairs == {
        (a, b)
        for a in range(len(keys))
        for b in range(len(keys))
        if a != b and keys[a][:2] == keys[b][:2]
    }


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


FACTS = {(0, 0, 1), (1, 0, 2), (2, 1, 3), (3, 1, 4), (0, 2, 1), (4, 0, 0), (2, 1, 0)}


def test_relations_by_a_loop() -> None:
    batch, states = draw(5)
    objective = RelationContrast(
        facts=Facts(FACTS), temperature=0.3, negatives=10_000, unrelated=10_000
    )
    mentions = Mentions.of(batch)
    keys = list(zip(mentions.document.tolist(), mentions.ids.tolist(), strict=True))
    by_hand = entities_by_hand(batch, states)
    vectors = [by_hand[document // T, 0, identity] for document, identity in keys]
    tuples = objective.draw(batch.key, mentions)
    drawn = list(
        zip(tuples.head.tolist(), tuples.tail.tolist(), tuples.relation.tolist(), strict=True)
    )
    wanted = set()
    for a, b in mentions.pairs().tolist():
        relations = {r for h, r, t in FACTS if (h, t) == (keys[a][1], keys[b][1])} or {-1}
        wanted |= {(a, b, relation) for relation in relations}
    assert set(drawn) == wanted
    assert len(drawn) == len(wanted)

    def near(x: tuple[int, int, int], y: tuple[int, int, int]) -> bool:
        return keys[x[0]][0] == keys[y[0]][0] and (x[0] == y[0] or x[1] == y[1])

    loss, right = 0.0, 0
    partners = dict(zip(tuples.anchor.tolist(), tuples.positive.tolist(), strict=True))
    assert len(partners) == len(tuples.anchor) > 4
    for anchor, positive in partners.items():
        own, other = drawn[anchor], drawn[positive]
        assert partners[positive] == anchor
        assert own[2] == other[2] >= 0
        assert not near(own, other)
        r = np.concatenate([vectors[own[0]], vectors[own[1]]])
        scores = []
        for each in drawn:
            if each[2] != own[2] and not near(own, each):
                scores.append(cosine(r, np.concatenate([vectors[each[0]], vectors[each[1]]])) / 0.3)
        best = cosine(r, np.concatenate([vectors[other[0]], vectors[other[1]]])) / 0.3
        loss -= best - math.log(sum(map(math.exp, scores)) + math.exp(best))
        right += best > max(scores)
    out = objective(Given(states), batch)
    assert out.terms["relation_contrast"].total.item() == pytest.approx(loss, rel=1e-9)
    assert int(out.logs["acc/relation_contrast"][0]) == right
    assert objective.counts(batch) == {"relation_contrast": len(partners)}


def test_negatives_and_unrelated_tuples_are_bounded() -> None:
    batch, _ = draw(5)
    objective = RelationContrast(facts=Facts(FACTS), temperature=0.3, negatives=3, unrelated=2)
    mentions = Mentions.of(batch)
    tuples = objective.draw(batch.key, mentions)
    assert (tuples.negative.sum(1) == 3).all()
    rest = tuples.head[tuples.relation < 0]
    assert np.bincount(mentions.document[rest] // T).tolist() == [2] * 5
    again = objective.draw(batch.key, mentions)
    assert (again.negative == tuples.negative).all()  # known before the forward pass


def test_two_equal_tuples_and_one_that_is_orthogonal() -> None:
    """log(1 + exp(-1 / t))"""
    spans = torch.tensor([[0, 0, 1, 0], [0, 1, 1, 1], [1, 0, 1, 2], [1, 1, 1, 3], [2, 0, 1, 4],
                          [2, 1, 1, 5]])  # fmt: skip
    states = torch.zeros(3, 2, 2, dtype=torch.float64)
    states[:2, :, 0], states[2, :, 1] = 1, 1
    batch = Batch(
        torch.arange(3),
        {"text": Seq(torch.zeros(3, 2, dtype=torch.int64), torch.full((3,), 2), {})},
        spans={"entity": spans},
    )
    facts = Facts({(0, 0, 1), (2, 0, 3), (4, 1, 5)})
    objective = RelationContrast(facts=facts, temperature=0.5, negatives=64, unrelated=0)
    out = objective(Given(states), batch)
    assert out.terms["relation_contrast"].total.item() == pytest.approx(
        2 * math.log(1 + math.exp(-2))
    )


def test_nothing_to_compare_is_no_loss() -> None:
    batch, states = draw(2)
    objective = RelationContrast(facts=Facts(set()), temperature=0.05)
    assert objective.counts(batch) == {"relation_contrast": 0}
    assert not objective(Given(states), batch).terms
    with pytest.raises(ConfigError, match="above 0"):
        RelationContrast(facts=Facts(set()), temperature=0)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("documents", [False, True])
def test_entities_by_a_loop(documents: bool, twice: bool) -> None:
    batch, states = draw(4, documents=documents)
    vectors, query = entities_by_hand(batch, states), []
    for row in (0, 2, 3):
        own = sorted(identity for r, part, identity in vectors if (r, part) == (row, 0))
        query.append((row, 0, 1, own[0], 7, own[-1]))
    batch = Batch(batch.key, batch.seqs, spans={**batch.spans, "query": torch.tensor(query)})
    loss = 0.0
    for row, _, _, head, _, tail in query:
        others = [key for key in vectors if key[:2] == (row, 0) and key[2] != head]
        scores = {key: cosine(vectors[row, 0, head], vectors[key]) / 0.2 for key in others}
        best = scores[row, 0, tail]
        total = sum(map(math.exp, scores.values())) + twice * math.exp(best)
        loss -= best - math.log(total)
    objective = EntityContrast(temperature=0.2, twice=twice)
    out = objective(Given(states), batch)
    assert out.terms["entity_contrast"].total.item() == pytest.approx(loss, rel=1e-9)
    assert objective.counts(batch) == {"entity_contrast": 3}


@pytest.mark.parametrize(("twice", "alike"), [(False, 1), (True, 2)])
def test_one_tail_at_cosine_1_and_others_at_0(twice: bool, alike: int) -> None:
    """log(1 + (K - 1) exp(-1 / t)), in the code's form log(2 + (K - 1) exp(-1 / t))."""
    states = torch.eye(5, dtype=torch.float64)[None]
    states[0, 1] = states[0, 0]  # head and tail
    spans = torch.tensor([[0, n, 1, n] for n in range(5)])
    batch = Batch(
        torch.arange(1),
        {"text": Seq(torch.zeros(1, 5, dtype=torch.int64), torch.tensor([5]), {})},
        spans={"entity": spans, "query": torch.tensor([[0, 0, 1, 0, 0, 1]])},
    )
    out = EntityContrast(temperature=0.5, twice=twice)(Given(states), batch)
    assert out.terms["entity_contrast"].total.item() == pytest.approx(
        math.log(alike + 3 * math.exp(-2))
    )
