"""The loss over a large table: what a compiler is given is what is computed without one."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from plmctl.core.batch import IGNORE
from plmctl.heads import table_loss
from plmctl.heads.table_loss import cross_entropy_of_table

V, SPARE, P, E = 50, 14, 12, 8


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function itself: what a compiler makes of it is tested on a GPU."""
    monkeypatch.setattr(table_loss, "_compile_turn", lambda: table_loss._turn_into_gradients)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("chunk", [1 << 20, 64])
def test_the_compiled_form_is_cross_entropy(with_bias: bool, chunk: int) -> None:
    g = torch.Generator().manual_seed(0)
    h = torch.randn(P, E, generator=g, dtype=torch.float64, requires_grad=True)
    table = torch.randn(V + SPARE, E, generator=g, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(V + SPARE, generator=g, dtype=torch.float64, requires_grad=True)
    used = [h, table, *([bias] if with_bias else [])]
    ids = torch.randint(0, V, (P,), generator=g)
    ids[[2, 7]] = IGNORE
    logits = (h @ table.T + (bias if with_bias else 0))[:, :V]
    ids[4] = logits[4].argmax()  # one guess that is right
    expected = F.cross_entropy(logits, ids, ignore_index=IGNORE, reduction="sum")
    right = int(((logits.argmax(1) == ids) & (ids != IGNORE)).sum())
    wanted = torch.autograd.grad(expected, used)

    loss, guessed, plain = cross_entropy_of_table(
        h, table, bias if with_bias else None, ids, V, chunk, compiled=True
    )
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(plain, expected)
    assert int(guessed) == right > 0
    for found, gradient in zip(torch.autograd.grad(loss, used), wanted, strict=True):
        torch.testing.assert_close(found, gradient)


@pytest.mark.usefixtures("uncompiled")
def test_a_tie_is_no_right_guess() -> None:
    h, table = torch.ones(1, 1), torch.tensor([[1.0], [1.0], [0.0]])
    for compiled in (False, True):
        right = cross_entropy_of_table(
            h, table, None, torch.tensor([0]), 3, 100, compiled=compiled
        )[1]
        assert int(right) == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_compiled_on_a_gpu() -> None:
    """Against the same loss without a compiler, in batches of two sizes."""
    g = torch.Generator("cuda").manual_seed(0)
    table = torch.randn(1024, 64, generator=g, device="cuda", requires_grad=True)
    bias = torch.randn(1024, generator=g, device="cuda", requires_grad=True)
    for size in (300, 511):
        h = torch.randn(size, 64, generator=g, device="cuda", requires_grad=True)
        ids = torch.randint(0, 1000, (size,), generator=g, device="cuda")
        ids[::7] = IGNORE
        found = []
        for compiled in (False, True):
            loss, right, _ = cross_entropy_of_table(
                h, table, bias, ids, 1000, 64 * 1024, compiled=compiled
            )
            found.append([loss.detach(), right, *torch.autograd.grad(loss, [h, table, bias])])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3)
