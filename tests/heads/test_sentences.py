"""The vector of a text against loops over its tokens."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.heads.features import HIDDEN
from plmctl.heads.pooler import Pooler
from plmctl.heads.sentences import REDUCTIONS, TEXT_POOLINGS, pool_text
from plmctl.models.base import Model
from tests.objectives.contrastive import W, batch_of, cells_of, encoder

LENGTHS = [10, 4, 1, 7]


def reduce_by_loop(name: str, tokens: list[Tensor], columns: list[int] | None = None) -> Tensor:
    if name == "weighted":  # the token in column t weighs t + 1
        numbers = [t + 1 for t in columns or range(len(tokens))]
        weighed = [n * token for n, token in zip(numbers, tokens, strict=True)]
        return sum(weighed, torch.zeros(W)) / sum(numbers)
    if name in ("mean", "mean_sqrt"):
        return sum(tokens, torch.zeros(W)) / len(tokens) ** (1 if name == "mean" else 0.5)
    if name == "max":
        return torch.stack([max(column) for column in torch.stack(tokens).T])
    return tokens[0] if name == "first" else tokens[-1]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_over_real_tokens(name: str) -> None:
    torch.manual_seed(0)
    states = torch.randn(3, 2, 5, W)  # [B, layers, T, W]
    real = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0], [0, 0, 0, 0, 1]]).bool()
    found = REDUCTIONS[name](states, real)
    for row in range(3):
        for layer in range(2):
            columns = [t for t in range(5) if real[row, t]]
            tokens = [states[row, layer, t] for t in columns]
            torch.testing.assert_close(found[row, layer], reduce_by_loop(name, tokens, columns))


@pytest.mark.parametrize("name", ["mean", "max", "mean_sqrt", "weighted"])
def test_a_row_without_tokens_is_zero(name: str) -> None:
    real = torch.tensor([[False] * 3])
    assert not REDUCTIONS[name](torch.randn(1, 3, W), real).any()


@pytest.mark.parametrize("name", [name for name, how in TEXT_POOLINGS.items() if not how.terms])
def test_the_vector_of_a_text(name: str) -> None:
    model = encoder(0.0, layers=2).eval()
    model.heads["pooler"] = pooler = Pooler(width=W).double()
    batch = batch_of(cells_of(LENGTHS))
    found = pool_text(model, batch, name)
    hidden = model(batch, record=HIDDEN)
    torch.testing.assert_close(pool_text(model, batch, name, hidden), found)
    for row, length in enumerate(LENGTHS):
        embedded, first, last = (hidden.recorded["hidden"][n][row, :length] for n in (0, 1, 2))
        assert not embedded.equal(first)
        if name == "first_last":
            wanted = sum((a + b) / 2 for a, b in zip(first, last, strict=True)) / length
        elif name == "pooler":
            wanted = torch.tanh(pooler.dense.weight @ last[0] + pooler.dense.bias)
        else:
            wanted = reduce_by_loop(name, list(last.detach()))
        torch.testing.assert_close(found[row], wanted)


def test_a_model_without_the_head() -> None:
    model = Model(backbone=encoder(0.0).backbone, heads={})
    with pytest.raises(ConfigError, match="this model has no pooler\n  fix: pooling=first"):
        pool_text(model, batch_of(cells_of([3])), "pooler")
