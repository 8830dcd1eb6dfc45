"""The heads: the chunked loss against a literal loop, ties stored once, formulas of the small
ones.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from plmctl.config.part_help import targets
from plmctl.config.recipes import conf_dir
from plmctl.core.batch import IGNORE
from plmctl.core.locate import locate
from plmctl.heads.base import Head, heads_of_states
from plmctl.heads.classify import Classify
from plmctl.heads.lm import LMHead
from plmctl.heads.pair import PairHead
from plmctl.heads.pooler import Pooler
from plmctl.heads.span import Span
from plmctl.heads.tag import Tag

W, V, P = 6, 23, 150  # more positions than one block
IDS = torch.randint(V, (P,), generator=torch.Generator().manual_seed(1))
IDS[::7] = IGNORE


def _head(
    *, tied: bool = True, transform: bool = True, bias: bool = True, chunk: int = 1 << 26
) -> tuple[LMHead, nn.Embedding]:
    torch.manual_seed(0)
    table = nn.Embedding(V, W)
    head = LMHead(
        width=W,
        vocab_size=V,
        token_embedding=table,
        tied=tied,
        transform=transform,
        bias=bias,
        eps=1e-5,
        chunk=chunk,
    )
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    return head.double(), table.double()


def _features(seed: int = 0) -> torch.Tensor:
    return torch.randn(
        P, W, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    ).requires_grad_()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("transform", [True, False])
@pytest.mark.parametrize("chunk", [1, 100 * V, 1 << 26])
def test_loss_is_the_literal_sum_and_so_are_its_gradients(
    tied: bool, transform: bool, chunk: int
) -> None:
    head, table = _head(tied=tied, transform=transform, bias=transform, chunk=chunk)
    features = _features()
    leaves = [features, *head.parameters(), *table.parameters()]
    loss, right = head.loss(features, IDS)
    logits = head(features)
    expected, guessed = torch.zeros((), dtype=torch.float64), 0
    for p in range(P):
        if IDS[p] != IGNORE:
            expected = expected - torch.log(
                torch.exp(logits[p, IDS[p]]) / torch.exp(logits[p]).sum()
            )
            guessed += int(logits[p].argmax() == IDS[p])
    torch.testing.assert_close(loss, expected, atol=1e-10, rtol=1e-10)
    assert int(right) == guessed
    made = torch.autograd.grad(loss / 3, leaves, allow_unused=True)
    wanted = torch.autograd.grad(expected / 3, leaves, allow_unused=True)
    for a, b in zip(made, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


def test_loss_does_not_overflow_and_ignores_everything_if_told_so() -> None:
    head, _ = _head(transform=False, bias=False)
    loss, right = head.loss(_features() * 1e4, IDS)
    assert math.isfinite(float(loss.detach()))
    loss, right = head.loss(_features(), torch.full((P,), IGNORE))
    assert (float(loss.detach()), int(right)) == (0.0, 0)
    (grad,) = torch.autograd.grad(loss, [head.table])
    assert not grad.any()


def test_loss_without_gradients_is_the_same() -> None:
    head, _ = _head()
    with torch.no_grad():
        quiet = head.loss(_features(), IDS)
    torch.testing.assert_close(quiet, head.loss(_features(), IDS))


def test_bf16_loss_is_summed_in_fp32() -> None:
    head, _ = _head()
    head = head.float()
    head._tied[0].float()
    features = _features().float()
    exact, _ = head.loss(features, IDS)
    with torch.autocast("cpu", torch.bfloat16):
        low, _ = head.loss(features, IDS)
    assert low.dtype == torch.float32
    assert float(low.detach()) == pytest.approx(float(exact.detach()), rel=1e-2)
    low.backward()
    assert head.bias is not None
    assert head.bias.grad is not None
    assert head.bias.grad.dtype == torch.float32


def test_tied_table_is_stored_once() -> None:
    tied, table = _head()
    assert set(tied.state_dict()) == {
        "dense.weight",
        "dense.bias",
        "norm.weight",
        "norm.bias",
        "bias",
    }
    assert tied.table is table.weight
    own, table = _head(tied=False)
    assert "weight" in own.state_dict()
    assert own.table is not table.weight


def test_small_heads_are_their_formulas() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, W)
    pooler, pair, tag, span = (
        Pooler(width=W),
        PairHead(width=W),
        Tag(width=W, num_classes=5, dropout=0.5).eval(),
        Span(width=W),
    )
    assert torch.equal(pooler(x), torch.tanh(pooler.dense(x)))
    assert torch.equal(pair(x), pair.linear(x))
    assert torch.equal(tag(x), tag.linear(x))
    assert span(x[None]).shape == (1, 3, 2)
    plain = Classify(width=W, num_classes=3, dropout=0.5).eval()
    dense = Classify(width=W, num_classes=3, dropout=0.5, dense=True).eval()
    assert torch.equal(plain(x), plain.linear(x))
    assert Classify(width=W, num_classes=3, dropout=0.5, bias=False).linear.bias is None
    assert dense.dense is not None
    assert torch.equal(dense(x), dense.linear(torch.tanh(dense.dense(x))))


def test_heads_say_what_their_answers_are_about() -> None:
    """Every head that conf/ names states it, and models are asked in the order of use: first the
    head of a task, then that of the text, then what pretraining left.
    """
    named = {
        target
        for file in conf_dir().rglob("*.yaml")
        for target in targets(file)
        if target.startswith("plmctl.heads.")
    }
    found = [locate(target) for target in named]
    heads = [part for part in found if issubclass(part, Head)]
    assert {part.about for part in heads} >= {"rows", "tokens", "spans", "text", "features"}
    table = nn.Embedding(V, W)
    lm = LMHead(
        width=W, vocab_size=V, token_embedding=table, tied=True, transform=False, bias=False
    )
    backbone = SimpleNamespace(streams=frozenset(), writes="text")
    made = {
        "pooler": Pooler(width=W),
        "nsp": PairHead(width=W),
        "mlm": lm,
        "class": Classify(width=W, num_classes=3, dropout=0.0),
    }

    def asked(**changed: Any) -> list[str]:
        like = SimpleNamespace(**(vars(backbone) | changed))
        return heads_of_states(SimpleNamespace(backbone=like, heads=made))  # type: ignore[arg-type]

    assert asked() == ["class", "mlm", "nsp"]
    assert asked(writes="target") == asked(streams=frozenset({"query"})) == ["class", "nsp"]
    del made["class"]
    assert asked() == ["mlm", "nsp"]
