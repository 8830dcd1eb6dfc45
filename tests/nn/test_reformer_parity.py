"""LSH and local attention against `transformers` with the same weights and rotations, in float64,
with gradients and padding.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plmctl.nn.cells.base import Cell
from plmctl.nn.cells.local_attention import LocalAttention
from plmctl.nn.cells.lsh_attention import LSHAttention
from plmctl.nn.env import Streams
from tests.nn.test_sequence_cells import packed, plain

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

W, HEADS, D, CHUNK, LENGTH = 12, 3, 4, 4, 24


def make_theirs(kind: str, causal: bool, rounds: int, buckets: Any) -> nn.Module:
    from transformers.models.reformer import modeling_reformer as theirs

    config = transformers.ReformerConfig(
        attention_head_size=D,
        num_attention_heads=HEADS,
        hidden_size=W,
        is_decoder=causal,
        num_hashes=rounds,
        num_buckets=buckets,
        hash_seed=5,
        lsh_attn_chunk_length=CHUNK,
        local_attn_chunk_length=CHUNK,
        lsh_attention_probs_dropout_prob=0.0,
        local_attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    part = theirs.LSHSelfAttention if kind == "lsh" else theirs.LocalSelfAttention
    return part(config).double().eval()


def compare(cell: Cell, theirs: nn.Module, names: list[str], padding: bool) -> None:
    """The output and the gradients of input and weights, without the last map."""
    inner = HEADS * D
    own: Any = cell
    named = dict(theirs.named_parameters())
    weights: list[Tensor] = [named[f"{name}.weight"] for name in names]
    with torch.no_grad():
        own.qkv.weight.copy_(torch.cat(weights))
        own.out.weight.copy_(torch.eye(inner))
    x = torch.randn(2, LENGTH, W, dtype=torch.float64, requires_grad=True)
    real = torch.ones(2, LENGTH, dtype=torch.bool)
    if padding:
        real[1, 17:] = False
    env = packed(torch.where(real, 0, -1)) if padding else plain(2, LENGTH)
    y = cell(Streams({"text": x}), env)
    wanted = theirs(x, attention_mask=real.long() if padding else None).hidden_states
    torch.testing.assert_close(y[real], wanted[real], rtol=1e-10, atol=1e-10)
    loss = torch.randn(y.shape, dtype=torch.float64) * real[..., None]
    grads = torch.autograd.grad((y * loss).sum(), [x, own.qkv.weight])
    others = torch.autograd.grad((wanted * loss).sum(), [x, *weights])
    found: list[Tensor] = [grads[0], *grads[1].split(inner)]
    torch.testing.assert_close(found, list(others), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padding", [True, False])
@pytest.mark.parametrize(("rounds", "buckets"), [(1, 4), (2, 6), (3, [2, 4])])
def test_lsh_attention(causal: bool, padding: bool, rounds: int, buckets: Any) -> None:
    theirs = make_theirs("lsh", causal, rounds, buckets)
    cell = LSHAttention(
        width=W,
        num_heads=HEADS,
        head_width=D,
        dropout=0.0,
        chunk=CHUNK,
        rounds=rounds,
        causal=causal,
        buckets=buckets,
        variant="released",
        hash_seed=5,
    )
    compare(cell.double().eval(), theirs, ["query_key", "value"], padding)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padding", [True, False])
def test_local_attention(causal: bool, padding: bool) -> None:
    cell = LocalAttention(
        width=W, num_heads=HEADS, head_width=D, dropout=0.0, chunk=CHUNK, causal=causal, wraps=True
    )
    theirs = make_theirs("local", causal, 1, 4)
    compare(cell.double().eval(), theirs, ["query", "key", "value"], padding)
