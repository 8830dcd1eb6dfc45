"""A small stack of any layout, and what its cells read, for the tests of how stacks run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.attention.patterns.causal import Causal
from plmctl.core.batch import Seq
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.cross_attention import CrossAttention
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.env import Env, Streams
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import NoPosition
from plmctl.nn.residual import PreNorm
from plmctl.nn.stack import Stack

B, T, W, HEADS, INNER = 2, 7, 8, 2, 16
NORM = partial(layer_norm, width=W, eps=1e-5)


def make_stack(
    layout: str,
    *,
    dropout: float = 0.0,
    residual: Any = PreNorm,
    dtype: torch.dtype = torch.float64,
    more: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Stack:
    """Weights and norms at random, from seed 0; `more`: cells beside a, c and f."""
    torch.manual_seed(0)
    attention = {"width": W, "num_heads": HEADS, "dropout": dropout}
    inner = {"width": W, "inner_width": INNER, "activation": "gelu", "dropout": dropout}
    stack = Stack(
        layout=layout,
        cells={
            "a": partial(Attention, **attention),
            "c": partial(CrossAttention, **attention),
            "f": partial(FeedForward, **inner),
            **(more or {}),
        },
        residual=residual(norm=NORM, dropout=dropout),
        **settings,
    )
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return stack.to(dtype)


def make_input(dtype: torch.dtype = torch.float64, length: int = T) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(B, length, W, generator=generator).to(dtype).requires_grad_()


def make_env(length: int = T, *, source: int = 0, **more: Any) -> Env:
    """Tokens see themselves and those before; all of `source` tokens of another stack."""
    seq = Seq(torch.zeros(B, length, dtype=torch.long), torch.full((B,), length), full=True)
    places = torch.arange(length)[None]
    ops = {"text": BoundOp(Mask.of(Causal(), seq), NoPosition(), places)}
    if source:
        seen = Mask(torch.ones(B, 1, 1, source, dtype=torch.bool))
        ops["source"] = BoundOp(seen, NoPosition(), torch.arange(source)[None])
    return Env(ops, seq=seq, **more)


def run_stack(
    stack: Stack, x: Tensor, env: Env, *, source: Tensor | None = None, record: bool = False
) -> tuple[Tensor, list[Tensor]]:
    """(the last state of the text, what was recorded)."""
    tensors = {"text": x} if source is None else {"text": x, "source": source}
    streams, recorded = stack(Streams(tensors), env, record=record)
    return streams["text"], recorded
