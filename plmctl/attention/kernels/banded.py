"""Blocks of queries against the keys that they may see, and no others.

A row is cut into blocks of queries, and its keys into cells of a few tokens. The pattern says which
cells a block may need (`Pattern.blocks`). For a window these are the cells around the block; with
global tokens also the first cell; for packed documents the cells of the same documents. The needed
cells are gathered side by side, and the dense kernel computes each block against its own row of
keys. With a window of r tokens time and memory grow with T r instead of T T, forward and backward,
on CPU and GPU; with random or fixed blocks, with their number.

Blocks of queries that need about equally many keys are computed together. A block with a global
token needs all keys, and so does not slow down the others. Window 1, blocks and cells of 2 tokens,
8 tokens, the first one global:

    block of queries    0        1        2        3
    cells of keys       0 1 2 3  0 1 2    0 1 2 3  0 2 3      (0: the global token)
    classes             {0, 1, 2, 3}: each needs more than half of 4, so all are computed with 4

Heads with different patterns are computed in groups of equal ones. A pattern that sees tokens at
multiples of a distance d (`Pattern.views`) is computed in d rows of T / d tokens. In such a row
these tokens are neighbours. Dilation 2, reach 1, 8 tokens:

    0 1 2 3 4 5 6 7     ->    0 2 4 6        token 4 sees 2, 4, 6: a window of 1
                              1 3 5 7

Where a head sees by several such views, each is computed by itself; the log of its sum of
exponentiated scores says how much it counts.

(Beltagy et al., 2020, arXiv:2004.05150, sec. 3.1 and appendix A; Zaheer et al., 2020,
arXiv:2007.14062, appendix D: gathered blocks; Child et al., 2019, arXiv:1904.10509, sec. 5.5.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.attention.kernels.base import Bias, Kernel, KernelPlan
from plmctl.attention.kernels.dense import Mask, attend, attend_part
from plmctl.attention.kernels.tiling import BLOCK, Tiling, cut_tiles, group_heads
from plmctl.attention.patterns.base import Pattern, make_row, spread
from plmctl.attention.patterns.key import make_key
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.graphs import outside_graphs
from plmctl.core.parts import part_of

Parts = tuple[Tensor, ...]
# (queries, keys, values, mask, bias) of some blocks -> what is known of each query
Compute = Callable[[Tensor, Tensor, Tensor, Mask, Tensor | None], Parts]

_KEPT = 4  # sizes of batches whose plans of static patterns are kept: training and evaluation


@part_of("kernel")
class Banded(Kernel):
    """Each block of `block` queries, or fewer if that saves more, meets the keys in reach. If the
    pattern's reach is bounded, time and memory are linear in the length of a row.
    """

    def __init__(self, *, block: int = BLOCK) -> None:
        if block < 1:
            raise ConfigError("block", block, "1 or more tokens", fix=f"block={BLOCK}")
        self.block = block
        self._plans: OrderedDict[Hashable, dict[Hashable, KernelPlan]] = OrderedDict()

    @outside_graphs  # works on the values of tensors
    def plan(self, pattern: Pattern, seq: Seq, *, start: int = 0) -> KernelPlan:
        if start:  # only the new tokens of a growing text: few queries
            return Mask.of(pattern, seq, k_offset=start)
        active = pattern.simplify(seq)
        if not active.static:
            return self._plan_heads(active, seq)
        size, key = (*seq.ids.shape[:2], seq.ids.device), make_key(active)
        plans = self._plans.setdefault(size, {})
        if key not in plans:
            plans[key] = self._plan_heads(active, seq)
            if len(self._plans) > _KEPT:
                self._plans.popitem(last=False)
        return plans[key]

    def share(self, pattern: Pattern, length: int) -> float:
        row = make_row(pattern, torch.zeros(length, dtype=torch.long, device="cpu"))
        active, computed, heads = pattern.simplify(row), 0, 0
        for group, part in group_heads(active):
            tiles = cut_tiles(part.simplify(row), row, self.block)
            computed += len(group) * min(length**2, sum(tiling.scores for tiling in tiles))
            heads += len(group)
        return computed / (heads * length**2)

    def remark(self, pattern: Pattern, length: int) -> str:
        share = self.share(pattern, length)
        return f"kernel banded: {share:.0%} of the scores are computed" if share < 1 else ""

    def _plan_heads(self, active: Pattern, seq: Seq) -> KernelPlan:
        groups = group_heads(active)
        plans = [self._plan_group(active, part.simplify(seq), seq) for _, part in groups]
        if len(plans) == 1:
            return plans[0]
        heads = [torch.tensor(group, device=seq.ids.device) for group, _ in groups]
        return HeadsPlan(active, seq, tuple(heads), tuple(plans))

    def _plan_group(self, active: Pattern, part: Pattern, seq: Seq) -> KernelPlan:
        """The plan for heads that see by `part`, a part of `active`."""
        tiles = cut_tiles(part, seq, self.block)
        if sum(tiling.scores for tiling in tiles) >= seq.ids.shape[0] * seq.ids.shape[1] ** 2:
            return Mask.of(part, seq)
        plans = tuple(_make_plan(active, seq, tiling) for tiling in tiles)
        return plans[0] if len(plans) == 1 else ViewsPlan(active, seq, plans)


@dataclass(frozen=True, eq=False)
class StructuredPlan(KernelPlan):
    """A plan that keeps the pattern and the batch that it was made from."""

    pattern: Pattern
    seq: Seq

    def hidden(self, like: Tensor) -> Tensor | None:
        return Mask.of(self.pattern, self.seq).hidden(like)


@dataclass(frozen=True, eq=False)
class BlockClass:
    """R blocks of queries that need about equally many keys: at most m cells of keys each."""

    queries: Tensor  # [R] number of the block among the B N of the batch
    keys: Tensor  # [R, m] numbers of cells of keys in the same row
    mask: Mask  # [R, H | 1, size, m cell]


@dataclass(frozen=True, eq=False)
class BlockPlan(StructuredPlan):
    """The blocks of one batch: N = ceil(T / size) in each of its B rows. For `gap` > 1 there are
    `gap` times as many rows, each `gap` times as short as in the batch.
    """

    gap: int
    size: int  # tokens of a block of queries
    cell: int  # tokens of a cell of keys
    classes: tuple[BlockClass, ...]
    order: Tensor  # [B N] the index of each block of queries among those of all classes

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        q_positions: Tensor,
        k_positions: Tensor,
        bias: Bias | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        def compute(q: Tensor, k: Tensor, v: Tensor, mask: Mask, added: Tensor | None) -> Parts:
            return (attend(q, k, v, mask=mask, bias=added, dropout=dropout),)

        (y,) = self._compute(compute, q, k, v, q_positions, k_positions, bias)
        return y

    def attend_part(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        q_positions: Tensor,
        k_positions: Tensor,
        bias: Bias | None,
        dropout: float,
    ) -> Parts:
        """The same, and the log of the sum of exponentiated scores, [B, H, T, 1]."""

        def compute(q: Tensor, k: Tensor, v: Tensor, mask: Mask, added: Tensor | None) -> Parts:
            return attend_part(q, k, v, mask=mask, bias=added, dropout=dropout)

        return self._compute(compute, q, k, v, q_positions, k_positions, bias)

    def _compute(
        self,
        compute: Compute,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_positions: Tensor,
        k_positions: Tensor,
        bias: Bias | None,
    ) -> Parts:
        """The results of `compute` for the blocks of each class, in the order of the rows."""
        length, batch = q.shape[2], q.shape[0]
        q, k, v = (_spread_heads(x, self.gap) for x in (q, k, v))
        rows, heads, short, width = q.shape
        count = -(-short // self.size)
        cells = count * self.size // self.cell
        positions = [spread(x.expand(batch, -1), self.gap) for x in (q_positions, k_positions)]
        asking = _cut(positions[0], self.size, self.size)  # [B N, size]
        asked = _cut(positions[1], self.size, self.cell)  # [B cells, cell]
        # [B H N, size, D] and [B H cells, cell, D]: a block is contiguous in memory
        missing = -short % self.size
        q, k, v = (F.pad(x, (0, 0, 0, missing)) for x in (q, k, v))
        q = q.reshape(-1, self.size, width)
        k, v = (x.reshape(-1, self.cell, x.shape[-1]) for x in (k, v))
        head = torch.arange(heads, device=q.device)
        outputs = []
        for group in self.classes:
            row, block = group.queries // count, group.queries % count
            first = row[:, None] * heads + head  # [R, H] number of the row of this head
            own = q.index_select(0, (first * count + block[:, None]).flatten())
            own = own.view(row.shape[0], heads, self.size, width)
            seen = (first[..., None] * cells + group.keys[:, None]).flatten()  # [R H m]
            keys, values = (
                x.index_select(0, seen).view(row.shape[0], heads, -1, x.shape[-1]) for x in (k, v)
            )
            added = None
            if bias is not None:
                others = asked[row[:, None] * cells + group.keys].flatten(1)
                added = bias(own, asking[group.queries], others)
            outputs.append(compute(own, keys, values, group.mask, added))
        return tuple(
            _unspread_heads(self._join(parts, rows, short), batch, length)
            for parts in zip(*outputs, strict=True)
        )

    def _join(self, parts: Sequence[Tensor], rows: int, length: int) -> Tensor:
        """[R, H, size, D] of every class -> [B, H, T, D]."""
        blocks = torch.cat(list(parts)) if len(parts) > 1 else parts[0]
        blocks = blocks.index_select(0, self.order).unflatten(0, (rows, -1)).transpose(1, 2)
        return blocks.flatten(2, 3)[:, :, :length]


@dataclass(frozen=True, eq=False)
class ViewsPlan(StructuredPlan):
    """Heads that see disjoint parts of a pattern, each with a plan of its own."""

    plans: tuple[BlockPlan, ...]

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        q_positions: Tensor,
        k_positions: Tensor,
        bias: Bias | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        parts = [
            plan.attend_part(
                q,
                k,
                v,
                q_positions=q_positions,
                k_positions=k_positions,
                bias=bias,
                dropout=dropout,
            )
            for plan in self.plans
        ]
        shares = torch.cat([z for _, z in parts], -1).softmax(-1).to(q.dtype)
        seen = [y * shares[..., i : i + 1] for i, (y, _) in enumerate(parts)]
        return torch.stack(seen).sum(0)


@dataclass(frozen=True, eq=False)
class HeadsPlan(StructuredPlan):
    """Groups of heads, each with a plan of its own."""

    heads: tuple[Tensor, ...]  # numbers of those of each group
    plans: tuple[KernelPlan, ...]

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        q_positions: Tensor,
        k_positions: Tensor,
        bias: Bias | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        outputs = [
            plan.attend(
                *(x.index_select(1, heads) for x in (q, k, v)),
                q_positions=q_positions,
                k_positions=k_positions,
                bias=None if bias is None else _choose_heads(bias, heads, q.shape[1]),
                dropout=dropout,
            )
            for heads, plan in zip(self.heads, self.plans, strict=True)
        ]
        return torch.cat(outputs, 1).index_select(1, torch.cat(self.heads).argsort())


def _choose_heads(bias: Bias, heads: Tensor, count: int) -> Bias:
    """`bias` for these of `count` heads."""

    def chosen(q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        added = bias(q, q_positions, k_positions)
        return added if added is None or added.shape[1] != count else added.index_select(1, heads)

    return chosen


def _make_plan(active: Pattern, seq: Seq, tiling: Tiling) -> BlockPlan:
    classes = []
    for queries, most in tiling.classes:
        keys = tiling.order[queries, :most]
        needed = torch.arange(most, device=keys.device) < tiling.counts[queries, None]
        mask = _mask(tiling, queries, keys, needed)
        classes.append(BlockClass(queries, keys, mask))
    every = torch.cat([group.queries for group in classes])
    order = torch.empty_like(every)
    order[every] = torch.arange(len(every), device=every.device)
    return BlockPlan(active, seq, tiling.gap, tiling.size, tiling.cell, tuple(classes), order)


def _mask(tiling: Tiling, queries: Tensor, keys: Tensor, needed: Tensor) -> Mask:
    """The mask for the blocks `queries [R]` and the cells `keys [R, m]`; only the cells with
    `needed [R, m]` count.
    """
    pattern, seq, size, cell = tiling.pattern, tiling.seq, tiling.size, tiling.cell
    length, count = seq.ids.shape[1], -(-seq.ids.shape[1] // size)
    q = (queries % count)[:, None] * size + torch.arange(size, device=queries.device)  # [R, size]
    k = (keys[..., None] * cell + torch.arange(cell, device=queries.device)).flatten(1)
    real = needed.repeat_interleave(cell, 1) & (k < length)  # [R, m cell]
    b = (queries // count).view(-1, 1, 1, 1)
    h = torch.arange(pattern.heads, device=queries.device).view(1, -1, 1, 1)
    q, k = q.clamp(max=length - 1)[:, None, :, None], k.clamp(max=length - 1)[:, None, None, :]
    allowed = pattern.bind(seq)(b, h, q, k) & real[:, None, None, :]
    return Mask(allowed.expand(queries.shape[0], -1, size, -1))


def _spread_heads(x: Tensor, gap: int) -> Tensor:
    """[B, H, T, D] -> [B gap, H, ceil(T / gap), D]: every `gap`-th token, from each of the first
    `gap`.
    """
    if gap == 1:
        return x
    x = F.pad(x, (0, 0, 0, -x.shape[2] % gap)).unflatten(2, (-1, gap))
    return x.permute(0, 3, 1, 2, 4).flatten(0, 1)


def _unspread_heads(x: Tensor, rows: int, length: int) -> Tensor:
    """The reverse: [B gap, H, n, D] -> [B, H, T, D]."""
    if x.shape[0] == rows:
        return x
    x = x.unflatten(0, (rows, -1)).permute(0, 2, 3, 1, 4)  # [B, H, n, gap, D]
    return x.flatten(2, 3)[:, :, :length]


def _cut(positions: Tensor, size: int, part: int) -> Tensor:
    """[B, T] -> [B n, part], filled up to a multiple of `size` with the position of the last
    token.
    """
    last = positions[:, -1:].expand(-1, -positions.shape[1] % size)
    return torch.cat([positions, last], 1).reshape(-1, part)
