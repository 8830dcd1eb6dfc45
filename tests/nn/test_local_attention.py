"""Local attention: the definition as a loop over pairs, documents, padding, positions, tokens one
by one.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.core.errors import UsageError
from plmctl.nn.cache import Cache
from plmctl.nn.cells.local_attention import LocalAttention
from plmctl.nn.env import Env, Streams
from plmctl.nn.positions import ALiBi, Rotary
from tests.nn.test_sequence_cells import packed, plain

W, HEADS, D, CHUNK = 6, 2, 4, 3
CAUSAL = pytest.mark.parametrize("causal", [True, False])


def make(**settings: Any) -> LocalAttention:
    torch.manual_seed(0)
    given = {"chunk": CHUNK, "causal": True, "dropout": 0.0, **settings}
    return LocalAttention(width=W, num_heads=HEADS, head_width=D, **given).double().eval()


def stream(rows: int = 2, length: int = 11) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, length, W, generator=generator, dtype=torch.float64)


def run(cell: LocalAttention, x: Tensor, env: Env | None = None) -> Tensor:
    return cell(Streams({"text": x}), env or plain(*x.shape[:2]))


def loop(cell: LocalAttention, x: Tensor, slopes: bool = False) -> Tensor:
    """One row [L, W] -> [L, W], pair by pair."""
    length, last = len(x), (len(x) - 1) // cell.chunk
    q, k, v = (cell.qkv.weight @ x.T).T.view(length, 3, HEADS, D).unbind(1)
    y = torch.zeros(length, HEADS, D, dtype=x.dtype)
    for head in range(HEADS):
        for i in range(length):
            scores, values = [], []
            for j in range(length):
                back = i // cell.chunk - j // cell.chunk
                near = back in (0, 1) or (cell.wraps and i < cell.chunk and back == -last)
                if near and (j <= i or cell.facts.ahead):
                    slope = 2.0 ** (-8 * (head + 1) / HEADS) if slopes else 0
                    scores.append(q[i, head] @ k[j, head] / D**0.5 - slope * abs(i - j))
                    values.append(v[j, head])
            y[i, head] = torch.stack(scores).softmax(0) @ torch.stack(values)
    return y.flatten(1) @ cell.out.weight.T


@pytest.mark.sampled(3)
@CAUSAL
@pytest.mark.parametrize("wraps", [True, False])
@pytest.mark.parametrize("length", [2, 3, 9, 11])
def test_it_is_the_loop_over_pairs(causal: bool, wraps: bool, length: int) -> None:
    cell, x = make(causal=causal, wraps=wraps), stream(2, length).requires_grad_()
    y, weights = run(cell, x), torch.randn(length, W, dtype=torch.float64)
    for row in range(2):
        wanted = loop(cell, x[row])
        torch.testing.assert_close(y[row], wanted, rtol=1e-10, atol=1e-10)
        inputs = [x, *cell.parameters()]
        grads = torch.autograd.grad((y[row] * weights).sum(), inputs, retain_graph=True)
        others = torch.autograd.grad((wanted * weights).sum(), inputs)
        torch.testing.assert_close(grads, others, rtol=1e-8, atol=1e-10)


@CAUSAL
@torch.no_grad()
def test_documents_and_padding_are_apart(causal: bool) -> None:
    """Padding in front moves the chunks; other documents are not seen."""
    cell, x = make(causal=causal), stream(3)
    documents = torch.tensor([[0] * 6 + [1] * 5, [-1] * 4 + [0] * 7, [0] * 8 + [-1] * 3])
    y = run(cell, x, packed(documents))
    for row, part in ((0, slice(0, 6)), (0, slice(6, 11)), (1, slice(4, 11)), (2, slice(0, 8))):
        # two whole chunks before the second document: it begins with a chunk of its own
        wanted = loop(cell, x[row, part])
        torch.testing.assert_close(y[row, part], wanted, rtol=1e-10, atol=1e-10)
    assert y.isfinite().all()


@CAUSAL
@torch.no_grad()
def test_positions_change_scores(causal: bool) -> None:
    cell, x = make(causal=causal), stream()
    op = BoundOp(Mask(None), ALiBi(num_heads=HEADS), torch.arange(11)[None])
    y = run(cell, x, Env({"text": op}))
    for row in range(2):
        torch.testing.assert_close(y[row], loop(cell, x[row], True), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cuts", [[4, 1, 6], [1] * 11, [11]])
@pytest.mark.parametrize("position", [ALiBi(num_heads=HEADS), Rotary()])
@torch.no_grad()
def test_token_by_token_equals_all_at_once(cuts: list[int], position: Any) -> None:
    cell, x = make(), stream()
    places = torch.arange(11)[None]
    whole = run(cell, x, Env({"text": BoundOp(Mask(None), position, places)}))
    cache, parts, start = Cache.of(1), [], 0
    for cut in cuts:
        piece = slice(start, start + cut)
        op = BoundOp(Mask(None), position, places[:, piece], places[:, : start + cut])
        parts.append(run(cell, x[:, piece], Env({"text": op}, cache=cache)))
        start += cut
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-12, atol=1e-12)


def test_what_looks_ahead_cannot_read_token_by_token() -> None:
    with pytest.raises(UsageError, match="causal=false cannot read token by token"):
        run(make(causal=False), stream(1, 1), plain(1, 1, Cache.of(1)))


def test_dropout_is_on_probabilities() -> None:
    """With values all 1, the mean of a row of probabilities stays 1."""
    cell = make(dropout=0.25, chunk=64).train()
    with torch.no_grad():
        cell.qkv.weight[2 * HEADS * D :] = 0
        cell.qkv.weight[2 * HEADS * D :, 0] = 1
        cell.out.weight.copy_(torch.ones(W, HEADS * D) / (HEADS * D))
    x = torch.randn(1, 256, W, dtype=torch.float64)
    x[..., 0] = 1
    y = run(cell, x).detach()
    assert y.std() > 0.01
    assert abs(float(y.mean()) - 1) < 0.02
