"""Scores, losses and ranks beside those of pykeen, from the same vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from plmctl.graph.ranks import place
from plmctl.graph.scores.base import Score
from plmctl.graph.scores.complex import ComplEx
from plmctl.graph.scores.distmult import DistMult
from plmctl.graph.scores.rotate import RotatE
from plmctl.graph.scores.transe import TransE
from tests.graph.tiny_graph import E, R, make_tables

modules = pytest.importorskip("pykeen.nn.modules")
pytestmark = pytest.mark.parity

PAIRS = {
    "transe-l1": (TransE(norm=1), "TransEInteraction", {"p": 1}),
    "transe-l2": (TransE(norm=2), "TransEInteraction", {"p": 2}),
    "distmult": (DistMult(), "DistMultInteraction", {}),
    "complex": (ComplEx(), "ComplExInteraction", {}),
    "rotate": (RotatE(norm=2), "RotatEInteraction", {}),
}


def theirs(score: Score, vectors: torch.Tensor, *, angle: bool = False) -> torch.Tensor:
    if angle:
        return torch.polar(torch.ones_like(vectors), vectors)
    if not score.complex:
        return vectors
    return torch.complex(*vectors.chunk(2, dim=-1))


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_scores_are_those_of_pykeen(name: str) -> None:
    score, kind, settings = PAIRS[name]
    interaction = getattr(modules, kind)(**settings)
    tables = make_tables(score)
    entity = theirs(score, tables.entity.detach())
    relation = theirs(score, tables.relation.detach(), angle=name == "rotate")
    triples = torch.cartesian_prod(torch.arange(E), torch.arange(R), torch.arange(E))
    h, r, t = triples.unbind(1)
    expected = interaction(entity[h], relation[r], entity[t]).view(E, R, E)
    for row in range(R):
        asked = torch.full((E,), row)
        ours = tables.rank_scores("tail", torch.arange(E), asked)
        torch.testing.assert_close(ours, expected[:, row])
        ours = tables.rank_scores("head", torch.arange(E), asked)
        torch.testing.assert_close(ours, expected[:, row].T)


def test_ranks_are_the_realistic_ones_of_pykeen() -> None:
    evaluation = pytest.importorskip("pykeen.evaluation.ranks")
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 6, (40, 12), generator=generator).float()
    scores[:, :3][scores[:, :3] == 0] = -torch.inf  # answers that are left out
    right = scores[:, 5:6]
    found = evaluation.Ranks.from_scores(true_score=right, all_scores=scores)
    assert np.array_equal(place(scores, right).numpy(), found.realistic.double().numpy())
