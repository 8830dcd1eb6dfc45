"""The two cells of the Evolved Transformer, token by token, from their description (So et al.,
2019, arXiv:1901.11117, fig. 3; tensor2tensor, evolved_transformer.py).

Weights are those of a stack with the layouts `uvaf` and `m|cvacf`, by letter; one row [T, W].
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from plmctl.nn.residual import Block
from plmctl.nn.stack import Stack


def take_blocks(stack: Stack, number: int) -> dict[str, Block]:
    """The blocks of one cell by letter; a letter that runs twice has its second copy as `a2`."""
    blocks: dict[str, Block] = {}
    for letter, copies in stack.blocks.items():
        times = len(copies) // len(stack.rounds)  # type: ignore[arg-type]
        for time in range(times):
            name = letter if time == 0 else f"{letter}{time + 1}"
            blocks[name] = copies[number * times + time]  # type: ignore[index, assignment]
    return blocks


def normalize(norm: nn.Module, x: Tensor) -> Tensor:
    weight, bias, eps = norm.weight, norm.bias, norm.eps
    rows = [(v - v.mean()) / ((v - v.mean()).square().mean() + eps).sqrt() for v in x]
    return torch.stack(rows) * weight + bias  # type: ignore[operator]


def dense(map_: nn.Linear, x: Tensor) -> Tensor:
    return torch.stack([map_.weight @ v + map_.bias for v in x])


def convolve(weights: Tensor, bias: Tensor, x: Tensor, before: int) -> Tensor:
    """A convolution: `weights [K, outputs, W]`, `before` taps before each token."""
    rows = []
    for t in range(len(x)):
        y = bias.clone()
        for j, weight in enumerate(weights):
            if 0 <= t + j - before < len(x):
                y = y + weight @ x[t + j - before]
        rows.append(y)
    return torch.stack(rows)


def separate(cell: nn.Module, x: Tensor, before: int) -> Tensor:
    """A depthwise convolution, which is one with diagonal matrices, then a linear map."""
    taps: Tensor = cell.taps.weight  # type: ignore[assignment, union-attr]
    diagonals = torch.stack([torch.diag(column) for column in taps.T])
    y = convolve(diagonals, x.new_zeros(x.shape[1]), x, before)
    return dense(cell.out, y)  # type: ignore[arg-type]


def widen(x: Tensor, width: int) -> Tensor:
    """Zeros at the right of the columns."""
    return torch.cat([x, x.new_zeros(len(x), width - x.shape[1])], 1)


def attend(cell: nn.Module, x: Tensor, source: Tensor | None, causal: bool) -> Tensor:
    """Softmax attention head by head, token by token."""
    heads: int = cell.num_heads  # type: ignore[assignment]
    if source is None:
        q, k, v = dense(cell.qkv, x).chunk(3, -1)  # type: ignore[arg-type]
    else:
        q = dense(cell.q, x)  # type: ignore[arg-type]
        k, v = dense(cell.kv, source).chunk(2, -1)  # type: ignore[arg-type]
    size = q.shape[1] // heads
    rows = []
    for t in range(len(x)):
        seen = t + 1 if causal else len(k)
        parts = []
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            scores = k[:seen, own] @ q[t, own] / math.sqrt(size)
            parts.append(scores.softmax(0) @ v[:seen, own])
        rows.append(torch.cat(parts))
    return dense(cell.out, torch.stack(rows))  # type: ignore[arg-type]


def encode(blocks: Mapping[str, Block], x: Tensor) -> Tensor:
    """The encoder's cell: gate, branches, attention, feed-forward."""
    u, v, a, f = (blocks[letter].cell for letter in "uvaf")
    width = x.shape[1]
    n = normalize(blocks["u"].norm_in, x)
    x = x + dense(u.value, n) * torch.sigmoid(dense(u.gate, n))
    n = normalize(blocks["v"].norm_in, x)
    left = torch.relu(dense(v.left.taps, n))
    right = v.right.taps
    kernels = torch.stack(right.weight.split(width, 1))
    both = left + widen(torch.relu(convolve(kernels, right.bias, n, 1)), 4 * width)
    x = x + widen(separate(v.join, normalize(v.norm, both), 4), width)
    x = x + attend(a, normalize(blocks["a"].norm_in, x), None, causal=False)
    n = normalize(blocks["f"].norm_in, x)
    return x + dense(f.down, torch.relu(dense(f.up, n)))


def decode(blocks: Mapping[str, Block], x: Tensor, source: Tensor | None) -> Tensor:
    """The decoder's cell; without a source, that of a language model."""
    m, v, a, f = (blocks[letter].cell for letter in "mvaf")
    width = x.shape[1]
    n = normalize(blocks["m"].norm_in, x)
    parallel = attend(m, n, None, causal=True)
    if source is not None:
        parallel = parallel + attend(blocks["c"].cell, n, source, causal=False)
    x = x + parallel
    n = normalize(blocks["v"].norm_in, x)
    both = torch.relu(separate(v.left, n, 10)) + widen(separate(v.right, n, 6), 2 * width)
    x = x + separate(v.join, normalize(v.norm, both), 6)
    x = x + attend(a, normalize(blocks["a"].norm_in, x), None, causal=True)
    if source is not None:
        second = blocks["c2"]
        x = x + attend(second.cell, normalize(second.norm_in, x), source, causal=False)
    n = normalize(blocks["f"].norm_in, x)
    swish = dense(f.up, n)
    swish = swish * torch.sigmoid(swish)
    return x + dense(f.down, normalize(f.norm, swish))
