"""KEPLER's loss against a loop over triples, and its first numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import DataError
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.objectives.kepler import Kepler

B, T, W, R = 5, 12, 6, 3


class States(Backbone):
    """States that are parameters."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.states = nn.Parameter(torch.randn(B, T, W, generator=generator, dtype=torch.float64))

    def forward(  # type: ignore[override]
        self, batch: Batch, state: object = None, record: object = None
    ) -> Hidden:
        return Hidden(self.states)


def make_batch(blank: int = 0) -> Batch:
    """Texts begin at 0, 3, 5 and 9; the last rows may be blank."""
    key = torch.arange(B)
    key[B - blank :] = -1
    anchors = torch.tensor([[row, column] for row in range(B) for column in (0, 3, 5, 9)])
    seq = Seq(torch.zeros(B, T, dtype=torch.int64), torch.full((B,), T))
    relation = torch.tensor([0, 2, 1, 1, 0])
    return Batch(
        key=key,
        seqs={"text": seq},
        anchors=anchors,
        values={"relation": relation},
        counts={"rows": B - blank},
    )


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


@pytest.mark.parametrize("blank", [0, 2])
def test_the_loss_is_the_formula(blank: int) -> None:
    objective = Kepler(width=W, relations=R, gamma=4.0).double()
    model, batch = Model(backbone=States(), heads={}), make_batch(blank)
    output = objective(model, batch)
    states, table = model.backbone.states.tolist(), objective.relation.weight.tolist()

    def score(h: list[float], r: list[float], t: list[float]) -> float:
        return 4.0 - math.sqrt(sum((a + b - c) ** 2 for a, b, c in zip(h, r, t, strict=True)))

    loss = right_more = reciprocal = 0.0
    tails = [states[row][3] for row in range(B - blank)]
    for row in range(B - blank):
        head, tail, other_head, other_tail = (states[row][column] for column in (0, 3, 5, 9))
        relation = table[int(batch.values["relation"][row])]
        right = score(head, relation, tail)
        wrong = score(other_head, relation, tail), score(head, relation, other_tail)
        loss -= 0.5 * (log_sigmoid(right) + sum(log_sigmoid(-x) for x in wrong) / 2)
        right_more += sum(right > x for x in wrong) / 2
        reciprocal += 1 / (1 + sum(score(head, relation, other) > right for other in tails))
    assert output.terms["kepler"].total.item() == pytest.approx(loss)
    assert objective.counts(batch) == {"kepler": B - blank}
    assert output.logs["acc/kepler"][0].item() == pytest.approx(right_more)
    assert output.logs["mrr"][0].item() == pytest.approx(reciprocal)
    output.terms["kepler"].total.backward()
    assert model.backbone.states.grad is not None
    assert (model.backbone.states.grad[:, 1] == 0).all()  # no text begins there
    assert (model.backbone.states.grad[: B - blank, 0] != 0).any(1).all()
    assert (model.backbone.states.grad[B - blank :] == 0).all()


def test_equal_tails_share_their_ranks() -> None:
    objective, model = Kepler(width=W, relations=R).double(), Model(backbone=States(), heads={})
    with torch.no_grad():
        model.backbone.states[:, 3] = 1.0
    assert objective(model, make_batch()).logs["mrr"][0].item() == pytest.approx(B / 3)


def test_the_first_relations() -> None:
    weight = Kepler(width=100, relations=500, gamma=4.0).relation.weight
    assert weight.abs().max() <= 6 / 100
    assert weight.std().item() == pytest.approx(0.06 / 3**0.5, rel=0.02)


def test_too_few_relations() -> None:
    objective, model = Kepler(width=W, relations=2).double(), Model(backbone=States(), heads={})
    with pytest.raises(DataError, match=r"fix: objective.kepler.relations=3"):
        objective(model, make_batch())
