"""FreeLB against algorithm 1 of its paper, written as a loop."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.training.regularisers.freelb import FreeLargeBatch
from tests.training.regularised import (
    compare,
    find_gradient,
    learn,
    lose,
    make,
    make_micro_batches,
    shorten,
)
from tests.training.toy import W


@pytest.mark.parametrize("steps", [1, 3])
def test_freelb_is_algorithm_1(tmp_path: Path, monkeypatch: Any, steps: int) -> None:
    trainer = make(tmp_path, FreeLargeBatch(steps=steps, rate=0.3, radius=0.5, start=0.4))
    model, first, expected_shifts = trainer.model, [], []

    def of_batch(vectors: Tensor, batch: Batch) -> Tensor:
        shift, losses = first[len(expected_shifts) // steps], []
        for _ in range(steps):
            expected_shifts.append(shift)
            leaf = shift.clone().requires_grad_()
            own = torch.autograd.grad(lose(model, vectors.detach() + leaf, batch), leaf)[0]
            losses.append(lose(model, vectors + shift, batch) / steps)
            shift = torch.stack(
                [shorten(r + 0.3 * g / g.norm(), 0.5) for r, g in zip(shift, own, strict=True)]
            )
        return torch.stack(losses).sum()

    found, shifts, _ = learn(trainer, monkeypatch)
    first += [shifts[0][0], shifts[steps][0]]
    compare(found, find_gradient(model, of_batch))
    for (shift,), step in zip(shifts, expected_shifts, strict=True):
        torch.testing.assert_close(shift, step, rtol=1e-9, atol=1e-12)


def test_the_first_place_is_uniform_and_by_the_length_of_the_row(
    tmp_path: Path, monkeypatch: Any
) -> None:
    trainer = make(tmp_path, FreeLargeBatch(steps=1, start=0.4))
    _, shifts, _ = learn(trainer, monkeypatch)
    batch = make_micro_batches()[0]
    for row, length in enumerate(batch.text.length.tolist()):
        bound = 0.4 / (length * W) ** 0.5
        own = shifts[0][0][row]
        assert float(own[:length].abs().max()) <= bound
        assert 0.4 * bound < float(own[:length].abs().mean()) < 0.6 * bound
        assert float(own[length:].abs().sum()) == 0
    torch.manual_seed(1)
    again = learn(trainer, monkeypatch)[1]
    torch.manual_seed(1)
    assert torch.equal(again[0][0], learn(trainer, monkeypatch)[1][-2][0])
    assert not torch.equal(again[0][0], shifts[0][0])
