"""Each score against its formula as a loop over numbers."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.graph.scores.base import Score
from plmctl.graph.scores.complex import ComplEx
from plmctl.graph.scores.distmult import DistMult
from plmctl.graph.scores.rotate import RotatE
from plmctl.graph.scores.transe import TransE
from plmctl.graph.tables import GraphTables
from tests.graph.tiny_graph import E, R, W, make_tables

Numbers = Sequence[float]


def complex_numbers(vector: Numbers) -> list[complex]:
    half = len(vector) // 2
    return [complex(a, b) for a, b in zip(vector[:half], vector[half:], strict=True)]


def transe(norm: int) -> Callable[[Numbers, Numbers, Numbers], float]:
    def score(h: Numbers, r: Numbers, t: Numbers) -> float:
        total = sum(abs(a + b - c) ** norm for a, b, c in zip(h, r, t, strict=True))
        return -(total ** (1 / norm))

    return score


def distmult(h: Numbers, r: Numbers, t: Numbers) -> float:
    return sum(a * b * c for a, b, c in zip(h, r, t, strict=True))


def complex_product(h: Numbers, r: Numbers, t: Numbers) -> float:
    parts = zip(*map(complex_numbers, (h, r, t)), strict=True)
    return sum(a * b * c.conjugate() for a, b, c in parts).real


def rotate(norm: int) -> Callable[[Numbers, Numbers, Numbers], float]:
    def score(h: Numbers, r: Numbers, t: Numbers) -> float:
        numbers = zip(complex_numbers(h), r, complex_numbers(t), strict=True)
        total = sum(abs(a * cmath.exp(1j * angle) - b) ** norm for a, angle, b in numbers)
        return -(total ** (1 / norm))

    return score


SCORES = {
    "transe-l1": (TransE(norm=1), transe(1)),
    "transe-l2": (TransE(norm=2), transe(2)),
    "distmult": (DistMult(), distmult),
    "complex": (ComplEx(), complex_product),
    "rotate-l1": (RotatE(norm=1), rotate(1)),
    "rotate-l2": (RotatE(norm=2), rotate(2)),
}


@pytest.mark.parametrize("name", sorted(SCORES))
def test_all_ways_to_score_are_the_formula(name: str) -> None:
    score, formula = SCORES[name]
    tables = make_tables(score)
    for h in range(E):
        for r in range(R):
            head, relation = torch.tensor([h]), torch.tensor([r])
            vectors = tables.entity[h], tables.relation[r]
            tails = tables.rank_scores("tail", head, relation)[0]
            heads = tables.rank_scores("head", head, relation)[0]
            question = score.ask_tail(*vectors)
            relations = score.compare_relations(
                vectors[0].expand(E, -1), tables.entity, tables.relation
            )  # [E, R]
            for t in range(E):
                other = tables.entity[t]
                expected = formula(*(v.tolist() for v in (*vectors, other)))
                backwards = formula(*(v.tolist() for v in (other, vectors[1], vectors[0])))
                assert tails[t].item() == pytest.approx(expected, abs=1e-9)
                assert relations[t, r].item() == pytest.approx(expected, abs=1e-9)
                assert heads[t].item() == pytest.approx(backwards, abs=1e-9)
                assert score.compare(question, other).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", sorted(SCORES))
def test_a_relation_of_its_own_asks_for_the_head_as_for_a_tail(name: str) -> None:
    score, formula = SCORES[name]
    tables = make_tables(score, reciprocal=True)
    assert len(tables.relation) == 2 * R
    for t in range(E):
        scores = tables.rank_scores("head", torch.tensor([t]), torch.tensor([1]))[0]
        vectors = tables.entity[t].tolist(), tables.relation[R + 1].tolist()
        expected = [formula(*vectors, tables.entity[h].tolist()) for h in range(E)]
        assert scores.tolist() == pytest.approx(expected, abs=1e-9)


def test_rotate_compares_all_entities_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = make_tables(RotatE())
    asked = torch.arange(4), torch.tensor([0, 1, 2, 0])
    whole = tables.rank_scores("tail", *asked)
    monkeypatch.setattr("plmctl.graph.scores.rotate.BLOCK", 50)  # two entities at a time
    torch.testing.assert_close(tables.rank_scores("tail", *asked), whole)


@pytest.mark.parametrize("name", sorted(SCORES))
def test_sizes_of_numbers(name: str) -> None:
    score, _ = SCORES[name]
    vector = torch.tensor([3.0, 0.0, 1.0, 4.0, -2.0, 0.0])
    expected = [5.0, 2.0, 1.0] if score.complex else vector.abs().tolist()
    assert score.moduli(vector).tolist() == pytest.approx(expected)


def test_the_size_of_zero_has_a_gradient() -> None:
    zero = torch.zeros(4, requires_grad=True)
    ComplEx().moduli(zero).sum().backward()
    assert zero.grad is not None
    assert zero.grad.isfinite().all()


def started(score: Score, width: int = 64) -> GraphTables:
    generator = torch.Generator().manual_seed(0)
    return GraphTables(
        score, entities=500, relations=40, width=width, reciprocal=False, generator=generator
    )


def test_first_vectors_of_transe() -> None:
    tables = started(TransE(unit_entities=False))
    bound = 6 / 64**0.5
    assert tables.entity.abs().max() <= bound
    assert tables.entity.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    assert tables.relation.norm(dim=1).tolist() == pytest.approx([1.0] * 40)
    assert started(TransE()).entity.norm(dim=1).tolist() == pytest.approx([1.0] * 500)


def test_first_vectors_of_rotate() -> None:
    tables = started(RotatE(spread=0.1))
    assert tables.relation.shape == (40, 32)
    assert tables.entity.abs().max() <= 0.1
    assert 3 < tables.relation.abs().max() <= math.pi


@pytest.mark.parametrize("kind", [DistMult, ComplEx])
def test_first_vectors_of_products(kind: type[DistMult]) -> None:
    tables = started(kind(spread=0.01))
    for table in (tables.entity, tables.relation):
        assert table.std().item() == pytest.approx(0.01, rel=0.05)


def test_the_seed_decides_the_first_vectors() -> None:
    assert torch.equal(started(ComplEx()).entity, started(ComplEx()).entity)


def test_complex_numbers_have_two_parts() -> None:
    with pytest.raises(ConfigError, match="fix: width=6"):
        make_odd()


def make_odd() -> None:
    GraphTables(ComplEx(), entities=2, relations=1, width=5, reciprocal=False)


def test_transe_keeps_entities_at_length_one() -> None:
    tables = make_tables(TransE())
    assert not torch.allclose(tables.entity.norm(dim=1), torch.ones(E, dtype=torch.float64))
    directions = tables.entity / tables.entity.norm(dim=1, keepdim=True)
    tables.score.constrain(tables.entity)
    torch.testing.assert_close(tables.entity.data, directions.data)
    free = make_tables(TransE(unit_entities=False))
    before = free.entity.clone()
    free.score.constrain(free.entity)
    assert torch.equal(free.entity, before)
    assert free.entity.shape == (E, W)
