"""Penalties of a model's parts reach the gradient once an update, whatever it is split into."""

from __future__ import annotations

import pytest
import torch

from plmctl.heads.features import ScalarMix
from plmctl.objectives.base import Output, Term
from plmctl.objectives.costs import charge
from tests.training.toy import ToyBatches, ToyObjective, curve, make_model, make_trainer

SCORES, STRENGTH = [0.5, -1.0, 2.0], 0.7


class Asks(ToyObjective):
    """The toy's two terms, the second of states that the mix has counted."""

    def forward(self, model, batch, state=None):
        out = super().forward(model, batch, state)
        shares = model.heads["mix"]([torch.full((1,), float(layer)) for layer in range(3)])
        return Output({**out.terms, "row": Term(out.terms["row"].total * shares.sum())}, out.logs)


def mixing(strength):
    model = make_model(0.0)
    model.heads["mix"] = ScalarMix(width=1, num_layers=2, layers=[0, 1, 2], penalty=strength)
    with torch.no_grad():
        model.heads["mix"].scores.copy_(torch.tensor(SCORES))
    return model


def gradient(tmp_path, monkeypatch, strength, micro):
    """{name: gradient} of one update over 8 rows, and what the loss and its terms were."""
    model = mixing(strength)
    monkeypatch.setattr("tests.training.toy.make_model", lambda *_: model)
    trainer = make_trainer(
        tmp_path, rows=8, micro=micro, objective=charge(model, Asks()), settings={"clip": 0.0}
    )
    micro_batches = next(ToyBatches(8, micro))
    _, entries = trainer.update.gradient(micro_batches, trainer.update.count(micro_batches, {}))
    told = {
        name: sum(float(total) for other, total, _ in entries if other == name)
        for name, _, _ in entries
    }
    return {
        name.replace("objective.objective.", "objective."): p.grad.clone()
        for name, p in trainer.parameters
    }, told


@pytest.mark.parametrize("micro", [8, 3, 1])
def test_of_any_micro_batches(tmp_path, monkeypatch, micro):
    free, before = gradient(tmp_path / "free", monkeypatch, 0.0, micro)
    held, after = gradient(tmp_path / "held", monkeypatch, STRENGTH, micro)
    assert free.keys() == held.keys()  # the weights of a part are not counted a second time
    for name, grad in free.items():
        own = torch.tensor([2 * STRENGTH * s for s in SCORES]) if name == "heads.mix.scores" else 0
        torch.testing.assert_close(held[name], grad + own, rtol=1e-5, atol=1e-6)
    assert after["loss"] - before["loss"] == pytest.approx(
        STRENGTH * sum(s * s for s in SCORES), rel=1e-5
    )
    assert "loss/penalty" not in before


def test_a_large_penalty_keeps_the_mean(tmp_path, monkeypatch):
    for strength in (0.0, 1e3):
        model = mixing(strength)
        with torch.no_grad():
            model.heads["mix"].scores.zero_()
        monkeypatch.setattr("tests.training.toy.make_model", lambda *_, made=model: made)
        make_trainer(tmp_path / str(strength), steps=12, objective=charge(model, Asks())).fit()
        largest = model.heads["mix"].scores.abs().max().item()
        assert largest > 0.02 if strength == 0 else largest < 0.02
    assert all("loss/penalty" in record for record in curve(tmp_path / "1000.0"))
