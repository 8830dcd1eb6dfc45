"""SMART and ALUM against their algorithms, written as loops."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.training.regularisers.alum import VirtualAdversary
from plmctl.training.regularisers.smart import Smart
from tests.training.regularised import Asked, compare, find_gradient, learn, lose, make, predict

# numbers at which the shift is not all at the bound
SIZES: dict[str, Any] = {"weight": 2.0, "steps": 2, "rate": 0.03, "radius": 0.05, "sigma": 0.01}


def kl(p: Tensor, q: Tensor) -> Tensor:
    """The sum over rows and classes, from probabilities."""
    a, b = p.softmax(-1), q.softmax(-1)
    return sum(
        a[row, k] * (a[row, k].log() - b[row, k].log())
        for row in range(len(a))
        for k in range(a.shape[1])
    )


def smart(clean: Tensor, moved: Tensor, chooses: bool) -> Tensor:
    return kl(clean, moved) + kl(moved, clean) if chooses else ((clean - moved) ** 2).sum()


def alum(clean: Tensor, moved: Tensor, chooses: bool) -> Tensor:
    clean = clean.detach()
    return kl(clean, moved) if chooses else ((clean - moved) ** 2).sum()


@pytest.mark.parametrize("chooses", [True, False])
@pytest.mark.parametrize(("part", "distance"), [(Smart, smart), (VirtualAdversary, alum)])
def test_it_is_its_algorithm(
    tmp_path: Path, monkeypatch: Any, part: Any, distance: Any, chooses: bool
) -> None:
    trainer = make(tmp_path, part(question=Asked(chooses=chooses), **SIZES))
    model, first, expected_shifts = trainer.model, [], []

    def of_batch(vectors: Tensor, batch: Batch) -> Tensor:
        shift, real = first[len(expected_shifts) // 3], batch.text.real
        expected_shifts.append(shift)
        clean = predict(model, vectors, real)
        for _ in range(2):
            leaf = shift.clone().requires_grad_()
            moved = predict(model, vectors.detach() + leaf, real)
            own = torch.autograd.grad(distance(clean.detach(), moved, chooses), leaf)[0]
            shift = shift.clone()
            for row in range(len(own)):
                for token in range(int(batch.text.length[row])):
                    g = own[row, token]
                    moved_token = shift[row, token] + 0.03 * g / max(map(abs, g.tolist()))
                    shift[row, token] = moved_token.clamp(-0.05, 0.05)
            expected_shifts.append(shift)
        moved = predict(model, vectors + shift, real)
        return lose(model, vectors, batch) + 2.0 * distance(clean, moved, chooses) / 5

    found, shifts, entries = learn(trainer, monkeypatch)
    assert float(shifts[0][0].abs().max()) == 0
    first += [shifts[1][0], shifts[5][0]]
    assert 0.005 < float(first[0][0].std()) < 0.015
    compare(found, find_gradient(model, of_batch))
    passes = [*shifts[1:4], *shifts[5:8]]
    for (shift,), step in zip(passes, expected_shifts, strict=True):
        torch.testing.assert_close(shift, step, rtol=1e-9, atol=1e-12)
    logged = [(total, count) for name, total, count in entries if name == "loss/smoothness/row"]
    assert [count for _, count in logged] == [3, 2]
    assert all(total > 0 for total, _ in logged)
