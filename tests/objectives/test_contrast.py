"""InfoNCE against its formula, its bound and its limits; hidden tokens come back to their
places.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.collate import collate
from plmctl.objectives.contrast import find_equal, info_nce, multiply, restore_originals
from tests.objectives.contrastive import batch_of, cells_of, holed


def literal(scores: torch.Tensor, barred: torch.Tensor) -> float:
    total = 0.0
    for i in range(len(scores)):
        allowed = [j for j in range(len(scores)) if j == i or not barred[i, j]]
        total -= math.log(math.exp(scores[i, i]) / sum(math.exp(scores[i, j]) for j in allowed))
    return total


@pytest.mark.parametrize("seed", range(3))
def test_is_the_formula(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(7, 7, generator=generator, dtype=torch.float64).requires_grad_()
    barred = torch.rand(7, 7, generator=generator) < 0.3
    total, right = info_nce(scores, barred)
    assert total.item() == pytest.approx(literal(scores.detach(), barred), abs=1e-10)
    open_ = scores.detach().masked_fill(barred & ~torch.eye(7, dtype=torch.bool), -math.inf)
    assert int(right) == sum(int(open_[i].argmax()) == i for i in range(7))
    total.backward()
    grad = scores.grad
    assert grad is not None
    assert torch.isfinite(grad).all()
    off = ~torch.eye(7, dtype=torch.bool)
    assert (grad[barred & off] == 0).all()


def test_limits() -> None:
    """Scores that say nothing: log B; pairs that are aligned: log(1 + (B - 1) exp(-difference));
    the bound holds for any.
    """
    none = torch.zeros(64, 64, dtype=torch.bool)
    mean = lambda scores: float(info_nce(scores, none)[0]) / 64  # noqa: E731
    assert mean(torch.zeros(64, 64)) == pytest.approx(math.log(64), abs=1e-6)
    aligned = torch.eye(64, dtype=torch.float64) * 2 / 0.05
    assert mean(aligned) == pytest.approx(math.log(1 + 63 * math.exp(-2 / 0.05)), abs=1e-12)
    x = torch.nn.functional.normalize(
        torch.randn(64, 300, generator=torch.Generator().manual_seed(0)), dim=1
    )
    y = torch.nn.functional.normalize(
        torch.randn(64, 300, generator=torch.Generator().manual_seed(1)), dim=1
    )
    assert mean(x @ y.T) == pytest.approx(math.log(64), abs=0.05)
    assert math.log(64) - mean(x @ x.T / 0.05) <= math.log(64)


def test_nothing_to_compare() -> None:
    scores = torch.zeros(0, 0, requires_grad=True)
    total, right = info_nce(scores, torch.zeros(0, 0, dtype=torch.bool))
    total.backward()
    assert (float(total.detach()), int(right)) == (0.0, 0)


def test_products_are_exact_under_autocast() -> None:
    a, b = (torch.randn(5, 700, generator=torch.Generator().manual_seed(n)) + 1 for n in range(2))
    with torch.autocast("cpu", torch.bfloat16):
        found = multiply(a, b)
        assert multiply(a.bfloat16(), b.bfloat16()).dtype == torch.float32
    torch.testing.assert_close(found, a @ b.T)
    assert multiply(a.double(), b.double()).dtype == torch.float64


def test_equal_rows() -> None:
    ids = torch.tensor([[1, 2, 0], [1, 2, 3], [1, 2, 0], [2, 1, 0]])
    assert find_equal(ids).long().tolist() == [
        [1, 0, 1, 0],
        [0, 1, 0, 0],
        [1, 0, 1, 0],
        [0, 0, 0, 1],
    ]


def test_hidden_tokens_come_back() -> None:
    clean = cells_of([10, 7, 4])
    batch = batch_of(holed(clean, [(0, 1, 3), (0, 6, 2), (1, 2, 4)]))
    assert not np.array_equal(batch.text.ids.numpy(), clean.seqs["text"].ids)
    assert np.array_equal(restore_originals(batch).text.ids.numpy(), clean.seqs["text"].ids)
    assert np.array_equal(
        restore_originals(restore_originals(batch)).text.ids.numpy(), clean.seqs["text"].ids
    )
    assert (batch.text.ids == 4).sum() == 9, "the batch given stays as it is"
    # place 0, where spare slots point
    first = Rows(np.arange(1), cells_of([4]).seqs, {"mlm": np.array([[7] + [IGNORE] * 9])})
    restored = restore_originals(collate(first, {"mlm": 5})).text.ids[0].tolist()
    assert restored == [7, *first.seqs["text"].ids[0, 1:].tolist()]
    plain = batch_of(clean)
    assert restore_originals(plain) is plain
