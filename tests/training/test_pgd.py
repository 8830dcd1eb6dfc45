"""PGD against its algorithm, written as a loop."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.training.regularisers.pgd import ProjectedGradient
from tests.training.regularised import compare, find_gradient, learn, lose, make, shorten


@pytest.mark.parametrize("start", [0.0, 0.2])
def test_pgd_is_its_algorithm(tmp_path: Path, monkeypatch: Any, start: float) -> None:
    trainer = make(tmp_path, ProjectedGradient(steps=3, rate=0.3, radius=0.5, start=start))
    model, first, expected_shifts = trainer.model, [], []

    def of_batch(vectors: Tensor, batch: Batch) -> Tensor:
        shift = first[len(expected_shifts) // 4]
        expected_shifts.append(shift)
        for _ in range(3):
            leaf = shift.clone().requires_grad_()
            own = torch.autograd.grad(lose(model, vectors.detach() + leaf, batch), leaf)[0]
            shift = torch.stack(
                [shorten(r + 0.3 * g / g.norm(), 0.5) for r, g in zip(shift, own, strict=True)]
            )
            expected_shifts.append(shift)
        return lose(model, vectors + shift, batch)

    found, shifts, _ = learn(trainer, monkeypatch)
    first += [shifts[0][0], shifts[4][0]]
    compare(found, find_gradient(model, of_batch))
    for (shift,), step in zip(shifts, expected_shifts, strict=True):
        torch.testing.assert_close(shift, step, rtol=1e-9, atol=1e-12)
    lengths = first[0].flatten(1).norm(dim=1)
    assert float(lengths.max()) <= start
    assert bool((lengths > 0).all()) is bool(start)
    assert float(shifts[3][0].flatten(1).norm(dim=1).max()) == pytest.approx(0.5)


def test_steps_without_length_are_refused() -> None:
    with pytest.raises(ConfigError, match="steps"):
        ProjectedGradient(steps=0)
    with pytest.raises(ConfigError, match="rate"):
        ProjectedGradient(rate=0.0)
