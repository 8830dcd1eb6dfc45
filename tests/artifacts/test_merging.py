"""Sums of the differences of models to their base: loops from the definitions."""

from __future__ import annotations

import pytest
import torch
from torch import Generator

from plmctl.artifacts.merging import WAYS, Kept, keep_random, read_weights
from plmctl.core.errors import UsageError


def kept(*weights: float, density: float = 1.0, seed: int = 0) -> Kept:
    return Kept(weights, density, Generator().manual_seed(seed))


def test_ties_trims_elects_and_means() -> None:
    """A loop over elements (Yadav et al., 2023, algorithm 1)."""
    known = torch.tensor([[3.0, -2.0, 0.1, 1.0], [-1.0, -4.0, 0.2, 2.0]]).double()
    found = WAYS["ties"].rule(known, kept(1.0, 1.0, density=0.5))
    assert found.tolist() == [3.0, -3.0, 0.0, 2.0]
    drawn = torch.randn(3, 4, 5, generator=Generator().manual_seed(1)).double()
    weights = (0.5, 2.0, 1.0)
    wanted = torch.zeros(4, 5).double()
    for row in range(4):
        for column in range(5):
            trimmed = []
            for own in drawn:
                larger = sum(bool(abs(x) > abs(own[row, column])) for x in own.flatten())
                trimmed.append(float(own[row, column]) if larger < 6 else 0.0)
            sign = 1 if sum(trimmed) >= 0 else -1
            same = [w * x for w, x in zip(weights, trimmed, strict=True) if x * sign > 0]
            wanted[row, column] = sum(same) / len(same) if same else 0.0
    found = WAYS["ties"].rule(drawn, kept(*weights, density=0.3))
    torch.testing.assert_close(found, wanted)


def test_dare_keeps_random_elements_and_the_mean() -> None:
    drawn = torch.randn(2, 200, 300, generator=Generator().manual_seed(1)).double()
    one = keep_random(drawn, kept(density=0.1))
    share = (one != 0).double().mean()
    assert share == pytest.approx(0.1, abs=0.005)
    torch.testing.assert_close(one[one != 0], drawn[one != 0] / 0.1)
    assert not torch.equal(one[0] != 0, one[1] != 0)
    torch.testing.assert_close(keep_random(drawn, kept(density=0.1)), one, rtol=0, atol=0)
    assert not torch.equal(keep_random(drawn, kept(density=0.1, seed=1)), one)
    found = WAYS["dare"].rule(drawn, kept(0.25, 2.0, density=0.1))
    torch.testing.assert_close(found, 0.25 * one[0] + 2 * one[1])
    found = WAYS["dare_ties"].rule(drawn, kept(1.0, 1.0, density=0.1))
    sign = torch.where(one.sum(0) >= 0, 1, -1)
    same = one * (one * sign > 0)
    torch.testing.assert_close(found, same.sum(0) / (same != 0).sum(0).clamp(min=1))


def test_weights_are_numbers() -> None:
    assert read_weights("0.5,-1") == [0.5, -1.0]
    assert read_weights(None) == []
    for text in ("a,b", "0.5,,1", "nan,1"):
        with pytest.raises(UsageError, match=r"--weights 0\.5,0\.5"):
            read_weights(text)
