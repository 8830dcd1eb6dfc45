"""Scores of vectors of distances, for all queries and keys of rows, without a gather."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

BLOCK = 32  # rows whose distances are multiplied together
HELD = 1 << 18  # products that are held at once, so that they stay in the cache of a core


def score_distances(q: Tensor, keys: Tensor | None, k: Tensor, queries: Tensor | None) -> Tensor:
    """s_ij = q_i keys_(i - j) + k_j queries_(i - j), [B, H, T, T].

    Rows are multiplied in blocks of C, with the T + C - 1 distances that occur in a block. In a
    block the score of a distance stands one column further to the left in each next row. So a view
    with rows of one number less has all scores of a key in one column (Dai et al., 2019,
    arXiv:1901.02860, appendix B).

    Args:
        q: [B, H, T, D]
        keys: [H, 2 T - 1, D] of the distances T - 1, T - 2, ..., 1 - T; None: no such term.
        k: [B, H, T, D]
        queries: The vectors of the same distances for the other term; None: no such term.
    """
    # seen from a key, the distances run the other way
    turned = None if queries is None else queries.flip(1)
    scores: Tensor = _Score.apply(q, keys, k, turned)
    return scores


class _Score(Function):
    """With S = skew(q keys^T) + skew(k queries^T)^T: dq = unskew(dS) keys, dkeys = unskew(dS)^T q,
    and the same of dS^T for k and queries.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, keys: Tensor | None, k: Tensor, queries: Tensor | None
    ) -> Tensor:
        length, saved = q.shape[2], list[Tensor | None]()
        scores = q.new_empty(*q.shape[:3], length)
        with torch.autocast(q.device.type, enabled=False):
            for x, vectors, into in ((q, keys, scores), (k, queries, scores.transpose(2, 3))):
                if vectors is None:
                    saved += [None, None]
                    continue
                blocks, windows = _cut(x), _slide(vectors.to(x.dtype), length)
                write = Tensor.add_ if any(x is not None for x in saved) else Tensor.copy_
                for part in _walk(blocks, windows, into):
                    torch.mm(
                        blocks[part.place, part.rows], windows[part.place].T, out=part.products
                    )
                    write(part.scores, part.straight)
                saved += [blocks, windows]
        ctx.save_for_backward(*saved)
        ctx.types = [None if vectors is None else vectors.dtype for vectors in (keys, queries)]
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        found, saved = list[Tensor | None](), ctx.saved_tensors
        sides = zip(saved[::2], saved[1::2], (grad, grad.transpose(2, 3)), ctx.types, strict=True)
        with torch.autocast(grad.device.type, enabled=False):
            for blocks, windows, given, dtype in sides:
                if blocks is None:
                    found += [None, None]
                    continue
                dx, dw = torch.empty_like(blocks), torch.zeros_like(windows)
                for part in _walk(blocks, windows, given):
                    part.straight.copy_(part.scores)
                    own = dx[part.place, part.rows]
                    torch.mm(part.products, windows[part.place], out=own)
                    dw[part.place].addmm_(part.products.T, blocks[part.place, part.rows])
                found += [_join(dx, grad.shape), _add_up(dw, grad.shape).to(dtype)]
        return tuple(found)


class _Part(NamedTuple):
    """The scores of one head, of a block of queries in some rows of the batch."""

    place: int  # the number of the head and the block
    rows: slice  # rows of the block
    products: Tensor  # [r C, T + C], with 0 where no score is
    straight: Tensor  # [r, C, T], a view of them
    scores: Tensor  # [r, C, T], a view of all scores


def _walk(blocks: Tensor, windows: Tensor, scores: Tensor) -> Iterator[_Part]:
    """The parts of `scores [B, H, T, T]`; they have one memory for their products."""
    batch, _, length, _ = scores.shape
    (number, size), span = _divide(length), windows.shape[1]
    step = max(1, min(batch, HELD // (size * span)))
    memory = blocks.new_zeros(step * size, span)
    for place in range(len(windows)):
        head, first = place // number, place % number * size
        for row in range(0, batch, step):
            own = scores[row : row + step, head, first : first + size]
            count, tall = own.shape[:2]
            if tall < size:  # the rest of the last block would have scores of the one before
                memory.zero_()
            products = memory[: count * size]
            straight = products.as_strided(
                (count, tall, length), (size * span, span - 1, 1), size - 1
            )
            yield _Part(place, slice(row * size, (row + count) * size), products, straight, own)


def _divide(length: int) -> tuple[int, int]:
    """(blocks, rows of a block) of so many rows; the last block may not be full."""
    number = -(-length // BLOCK)
    return number, -(-length // number)


def _cut(x: Tensor) -> Tensor:
    """[B, H, T, D] -> [H blocks, B C, D]."""
    number, size = _divide(x.shape[2])
    x = F.pad(x, (0, 0, 0, number * size - x.shape[2]))
    return x.unflatten(2, (number, size)).permute(1, 2, 0, 3, 4).flatten(2, 3).flatten(0, 1)


def _join(blocks: Tensor, shape: torch.Size) -> Tensor:
    """`_cut` back."""
    number, size = _divide(shape[2])
    x = blocks.view(shape[1], number, shape[0], size, -1).permute(2, 0, 1, 3, 4)
    return x.flatten(2, 3)[:, :, : shape[2]]


def _slide(vectors: Tensor, length: int) -> Tensor:
    """[H, 2 T - 1, D] -> [H blocks, T + C, D]: the distances of each block, and one more."""
    number, size = _divide(length)
    vectors = F.pad(vectors, (0, 0, number * size - length, 1))
    starts = range((number - 1) * size, -1, -size)
    windows = [vectors[:, start : start + length + size] for start in starts]
    return torch.stack(windows, 1).flatten(0, 1)


def _add_up(windows: Tensor, shape: torch.Size) -> Tensor:
    """The sum of the windows of `_slide`, each at its distances."""
    length, (number, size) = shape[2], _divide(shape[2])
    windows = windows.unflatten(0, (-1, number))
    total = windows.new_zeros(shape[1], number * size + length, windows.shape[-1])
    for place, own in enumerate(windows.unbind(1)):
        start = (number - 1 - place) * size
        total[:, start : start + own.shape[1]] += own
    return total[:, number * size - length : -1]
