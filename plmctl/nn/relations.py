"""The relations of queries and keys (distances, equal segments), computed once for all layers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from plmctl.attention.op import BoundOp
from plmctl.nn.env import Env, Streams


@dataclass(frozen=True)
class Relations:
    """A table of sinusoids for the distances that occur, and the distance between each query and
    each key.

    Row m of `table` is for the distance `high - m` = position of the query - position of the key.
    Keys have the positions 0, 1, ..., K - 1, those of memory first. The first `rows` queries have
    the positions `first`, `first + 1`, ...; the others any, so that `index` names the row of the
    table for each of their keys. In rows of the batch that are `reversed`, whose text runs
    backwards, every distance counts as its negative.
    """

    table: Tensor  # [1 | 2, n, W]: as they are, and for reversed rows
    high: int
    first: int
    rows: int
    keys: int
    index: Tensor | None = None  # [B | 1, P, K]
    reversed: Tensor | None = None  # [B] bool; None: no row is
    # [B | 1, 1, Tq, K] bool: query and key are of different segments; None: never
    apart: Tensor | None = None

    def drop_out(self, dropout: nn.Module) -> Relations:
        """These relations with dropout on the sinusoids, one mask for all layers."""
        return replace(self, table=dropout(self.table))

    def gather(self, scores: Tensor) -> Tensor:
        """[B, H, Tq, K] out of `scores [B, H, Tq, n]`, the score of every query for every distance.

        Query r of the first ones wants columns `high - first - r + (0 .. K - 1)`, one further to
        the left than query r - 1. The same numbers in rows of n - 1 instead of n shift them so (Dai
        et al., 2019, arXiv:1901.02860, appendix B).
        """
        parts = []
        if self.rows:
            begin, n = self.high - self.first, scores.shape[-1] - 1
            flat = scores[:, :, : self.rows].flatten(-2)[..., begin : begin + self.rows * n]
            parts.append(flat.unflatten(-1, (self.rows, n))[..., : self.keys])
        if self.index is not None:
            index = self.index[:, None].expand(*scores.shape[:2], -1, -1)
            parts.append(scores[:, :, self.rows :].gather(-1, index))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 2)

    def distances(self) -> Tensor:
        """[B | 1, Tq, K] position of each query - position of each key; its negative in reversed
        rows.
        """
        device, parts = self.table.device, list[Tensor]()
        if self.rows:
            queries = torch.arange(self.first, self.first + self.rows, device=device)
            parts.append((queries[:, None] - torch.arange(self.keys, device=device))[None])
        if self.index is not None:
            parts.append(self.high - self.index)
        rows = max(part.shape[0] for part in parts)
        distances = torch.cat([part.expand(rows, -1, -1) for part in parts], 1)
        if self.reversed is None:
            return distances
        return torch.where(self.reversed[:, None, None], -distances, distances)


@dataclass(frozen=True, kw_only=True, eq=False)
class RelativeOp(BoundOp):
    """Attention over tokens with known distances."""

    relations: Relations
    # only the first so many rows are keys, the others only queries (XLNet's query stream)
    keys: int | None = None


def read_key_rows(streams: Streams, env: Env) -> Tensor:
    """[B, K, W] what keys are made of: the text without query rows, behind the memory that is not
    in the cache yet.
    """
    op, text, memory = env.ops["text"], streams["text"], streams.get("memory")
    seen = text[:, : op.keys] if isinstance(op, RelativeOp) else text
    if memory is not None and (env.slot is None or env.slot.length == 0):
        return torch.cat([memory, seen], 1)
    return seen


def make_relations(
    *,
    width: int,
    first: int,
    rows: int,
    like: Tensor,
    positions: Tensor | None = None,
    reversed: Tensor | None = None,
    apart: Tensor | None = None,
    key_positions: Tensor | None = None,
    farthest: int | None = None,
) -> Relations:
    """Relations of `rows` queries that are the last keys, at positions `first`, `first + 1`, ...,
    and of others.

    Args:
        like: a tensor with the type and the device of the result.
        positions: [B | 1, P] positions of further queries, none beyond `first + rows`.
        reversed: [B] bool, rows whose text runs backwards.
        apart: [B | 1, 1, Tq, K] bool, whether query and key are of different segments.
        key_positions: [B | 1, K] if keys are not at 0, 1, ...; then `positions` names all queries.
        farthest: greater distances count as this one.
    """
    keys, high = first + rows, first + rows
    distance = torch.arange(
        high, -high if key_positions is not None else -rows, -1, device=like.device
    )
    if farthest is not None:
        distance = distance.clamp(-farthest, farthest)
    table = compute_sinusoids(distance, width)
    table = (
        table[None]
        if reversed is None
        else torch.stack([table, table * _mirror_factors(width, like.device)])
    )
    index = None
    if positions is not None:
        key_at = (
            torch.arange(keys, device=like.device)[None] if key_positions is None else key_positions
        )
        # indices beyond the table belong to padding
        index = (high - positions[:, :, None] + key_at[:, None]).clamp(0, table.shape[1] - 1)
    count = 0 if key_positions is not None else rows
    return Relations(table.to(like.dtype), high, first, count, keys, index, reversed, apart)


def compute_sinusoids(distance: Tensor, width: int, base: float = 10000.0) -> Tensor:
    """`R_p = [sin(p w_0) ... | cos(p w_0) ...]`, w_i = base^(-2i / W), [n] -> [n, W] in fp64.

    (Dai et al., 2019, arXiv:1901.02860, sec. 3.3; kimiyoung/transformer-xl: all sines first, then
    all cosines.)
    """
    steps = torch.arange(0, width, 2, device=distance.device, dtype=torch.float64)
    angles = distance.double()[:, None] * torch.exp(steps * (-math.log(base) / width))
    return torch.cat([angles.sin(), angles.cos()], -1)


def _mirror_factors(width: int, device: torch.device) -> Tensor:
    """[W] the factors from R_p to R_-p: sines change their sign."""
    return torch.where(torch.arange(width, device=device) < width // 2, -1.0, 1.0).double()
