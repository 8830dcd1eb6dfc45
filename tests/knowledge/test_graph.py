"""The known answers of questions, against a loop."""

from __future__ import annotations

import numpy as np
import pytest

from plmctl.knowledge.graph import Answers, Side
from tests.graph.tiny_graph import E, R, make_graph

TRIPLES = make_graph(triples=60).triples


@pytest.mark.parametrize("side", ["head", "tail"])
def test_answers_of_all_questions(side: Side) -> None:
    doubled = np.concatenate([TRIPLES, TRIPLES[:5]])
    answers = Answers(doubled, side, entities=E, relations=R)
    known, relation = (x.ravel() for x in np.meshgrid(np.arange(E), np.arange(R)))
    row, entity = answers.find(known, relation)
    found: list[set[int]] = [set() for _ in known]
    for place, one in zip(row, entity, strict=True):
        assert one not in found[place]
        found[place].add(int(one))
    true = {tuple(triple) for triple in TRIPLES.tolist()}
    for number, (e, r) in enumerate(zip(known.tolist(), relation.tolist(), strict=True)):
        right = {x for x in range(E) if ((e, r, x) if side == "tail" else (x, r, e)) in true}
        assert found[number] == right
        held = answers.hold(np.array([[e]]), np.array([[r]]), np.arange(E)[None])[0]
        assert set(np.flatnonzero(held)) == right


def test_no_triples() -> None:
    answers = Answers(np.empty((0, 3), np.int64), "tail", entities=E, relations=R)
    assert len(answers.find(np.array([1]), np.array([0]))[0]) == 0
    assert not answers.hold(np.array([1]), np.array([0]), np.array([2])).any()


def test_a_fingerprint_is_that_of_names_and_triples() -> None:
    assert make_graph().fingerprint == make_graph().fingerprint
    assert make_graph().fingerprint != make_graph(seed=1).fingerprint
