"""How tokens reach each other over many layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from plmctl.attention.patterns.base import Pattern, make_row

_CHUNK = 64  # queries that one step of the search evaluates together


def hears_all(
    allowed: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    position: int,
    *,
    heads: int,
    length: int,
) -> bool:
    """Whether, over many layers, information from every token reaches the token at `position` of a
    row of `length` tokens.

    The search goes from token to token, a few at a time, the outermost first. A window takes as
    many evaluations as it has steps, and nothing of size T x T is computed.

    Args:
        allowed: `(b, h, q, k) -> bool`, who sees whom.
        position: The position of the token; a negative one counts from the end.
        heads: Heads that see.
    """
    head = torch.arange(heads, device="cpu").view(1, -1, 1, 1)
    keys = torch.arange(length, device="cpu").view(1, 1, 1, -1)
    zero = torch.zeros(1, 1, 1, 1, dtype=torch.long, device="cpu")
    reached = torch.zeros(length, dtype=torch.bool, device="cpu")
    visited = reached.clone()
    waiting = [position % length]
    while waiting and not bool(reached.all()):
        visited[waiting] = True
        queries = torch.tensor(waiting, device="cpu").view(1, 1, -1, 1)
        seen = allowed(zero, head, queries, keys).expand(1, heads, len(waiting), length)
        reached |= seen.any(2).any(1)[0] | visited
        left = (reached & ~visited).nonzero()[:, 0].tolist()
        waiting = left[: _CHUNK // 2] + left[_CHUNK // 2 :][-_CHUNK // 2 :]
    return bool(reached.all())


def reaches_all(pattern: Pattern, position: int, segments: tuple[int, int], length: int) -> bool:
    """Whether, over many layers, information from every token reaches the token at `position`,
    in a row of `length` tokens whose halves are of these segments.
    """
    half = torch.full([length], segments[0], device="cpu")
    half[length // 2 :] = segments[1]
    seq = make_row(pattern, half)
    allowed = pattern.simplify(seq).bind(seq)
    return hears_all(allowed, position, heads=pattern.heads, length=length)
