"""Seq2seq against a literal loop, with and without label smoothing, values and gradients in
float64.
"""

from __future__ import annotations

import pytest
import torch

from plmctl.core.batch import IGNORE
from plmctl.heads.lm import LMHead


def reference(
    logits: torch.Tensor, ids: torch.Tensor, smoothing: float, spared: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """All tokens share, or, as in UniLM's loss.py, all but the right one and the padding: e / (V
    - 2) each, 1 - e for it.
    """
    loss, plain = logits.new_zeros(()), logits.new_zeros(())
    for row, answer in zip(logits, ids.tolist(), strict=True):
        if answer == IGNORE:
            continue
        log_p = row - row.exp().sum().log()
        if spared is None:
            wanted = torch.full_like(row, smoothing / len(row))
            wanted[answer] += 1 - smoothing
        else:
            wanted = torch.full_like(row, smoothing / (len(row) - len({answer, spared})))
            wanted[spared], wanted[answer] = 0.0, 1 - smoothing
        assert wanted.sum().item() == pytest.approx(1)
        loss, plain = loss - (wanted * log_p).sum(), plain - log_p[answer]
    return loss, plain


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("chunk", [1 << 26, 200])
@pytest.mark.parametrize("spared", [None, 3])
def test_smoothed_loss_and_gradients_are_those_of_a_loop(
    smoothing: float, chunk: int, spared: int | None
) -> None:
    torch.manual_seed(0)
    table = torch.nn.Embedding(70, 12).double()
    head = LMHead(
        width=12,
        vocab_size=70,
        token_embedding=table,
        tied=False,
        transform=False,
        bias=True,
        chunk=chunk,
    ).double()  # 70 tokens: the table has spare rows
    torch.nn.init.normal_(head.bias)  # type: ignore[arg-type]
    with torch.no_grad():
        head.bias[70:] = 0  # type: ignore[index]
    features, ids = torch.randn(9, 12).double().requires_grad_(), torch.randint(0, 70, (9,))
    ids[[2, 5]] = IGNORE
    ids[0] = 3
    loss, _, plain = head.smoothed_loss(features, ids, smoothing, spared=spared)
    expected, bare = reference(head(features), ids, smoothing, spared)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(plain, bare, rtol=1e-10, atol=1e-10)
    parameters = [features, head.weight, head.bias]
    for found, wanted in zip(
        torch.autograd.grad(loss, parameters),
        torch.autograd.grad(expected, parameters),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_torch_agrees_on_smoothing() -> None:
    torch.manual_seed(1)
    head = LMHead(
        width=8,
        vocab_size=64,
        token_embedding=torch.nn.Embedding(64, 8),
        tied=False,
        transform=False,
        bias=False,
    )
    features, ids = torch.randn(6, 8), torch.randint(0, 64, (6,))
    found = head.smoothed_loss(features, ids, 0.1)[0]
    torch.testing.assert_close(
        found,
        torch.nn.functional.cross_entropy(
            head(features), ids, label_smoothing=0.1, reduction="sum"
        ),
    )
