"""Blocks of queries against the blocks of keys that they may see, and no others.

A row is cut into blocks of `block` tokens. The pattern says which blocks of keys a block of queries
may need (`Pattern.blocks`): for a window those around it, with global tokens also the first one, of
packed documents those of the same documents. The needed blocks are gathered side by side, and the
dense kernel computes each block of queries against its own row of keys. With a window of r tokens
time and memory grow with T r instead of T T, forward and backward, on CPU and GPU.

Blocks of queries that need about equally many keys are computed together, so that a block with a
global token, which needs all keys, does not slow down the others. Window 1, blocks of 2 tokens, 8
tokens, the first one global:

    block of queries    0        1        2        3
    blocks of keys      0 1 2 3  0 1 2    0 1 2 3  0 2 3      (0: the global token)
    classes             {0, 1, 2, 3}: each needs more than half of 4, so all are computed with 4

(Beltagy et al., 2020, arXiv:2004.05150, sec. 3.1 and appendix A; Zaheer et al., 2020,
arXiv:2007.14062, appendix D: gathered blocks.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.attention.kernels.base import Bias, Kernel, KernelPlan
from plmctl.attention.kernels.dense import Mask, attend
from plmctl.attention.patterns.base import Pattern
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.graphs import outside_graphs
from plmctl.core.parts import part_of

BLOCK = 128  # tokens
_KEPT = 4  # plans of static patterns: the lengths of training and evaluation


@part_of("kernel")
class Banded(Kernel):
    """Each block of `block` queries meets the blocks of keys in reach: time and memory are linear
    in the length of a row where the pattern's reach is bounded.
    """

    def __init__(self, *, block: int = BLOCK) -> None:
        if block < 1:
            raise ConfigError("block", block, "1 or more tokens", fix=f"block={BLOCK}")
        self.block = block
        self._plans: OrderedDict[Hashable, KernelPlan] = OrderedDict()

    @outside_graphs  # works on the values of tensors
    def plan(self, pattern: Pattern, seq: Seq, *, start: int = 0) -> KernelPlan:
        if start:  # only the new tokens of a growing text: few queries
            return Mask.of(pattern, seq, k_offset=start)
        active = pattern.simplify(seq)
        key = (make_key(active), *seq.ids.shape[:2], seq.ids.device)
        if active.static and key in self._plans:
            return self._plans[key]
        needed = active.blocks(seq, self.block)
        plan: KernelPlan = (
            Mask.of(pattern, seq)
            if bool(needed.all())
            else _make_plan(active, seq, needed, self.block)
        )
        if active.static:
            self._plans[key] = plan
            if len(self._plans) > _KEPT:
                self._plans.popitem(last=False)
        return plan

    def share(self, pattern: Pattern, length: int) -> float:
        row = pattern.row(torch.zeros(length, dtype=torch.long, device="cpu"))
        counts = pattern.simplify(row).blocks(row, self.block).sum(-1).flatten()
        computed = sum(size * len(rows) for rows, size in _classes(counts))
        return min(1.0, computed * self.block**2 / length**2)

    def remark(self, pattern: Pattern, length: int) -> str:
        share = self.share(pattern, length)
        return f"kernel banded: {share:.0%} of the scores are computed" if share < 1 else ""


@dataclass(frozen=True, eq=False)
class BlockClass:
    """R blocks of queries that need about equally many keys: at most m blocks of keys each."""

    queries: Tensor  # [R] number of the block among the B N of the batch
    keys: Tensor  # [R, m] numbers of blocks of keys in the same row
    mask: Mask  # [R, H | 1, size, m size]


@dataclass(frozen=True, eq=False)
class BlockPlan(KernelPlan):
    """The blocks of one batch: N = ceil(T / size) in each of its B rows."""

    pattern: Pattern
    seq: Seq
    size: int
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
        rows, heads, length, width = q.shape
        count = -(-length // self.size)
        head = torch.arange(heads, device=q.device)
        # [B H N, size, D]: a block is contiguous in memory
        q, k, v = (self._blocks(x) for x in (q, k, v))
        positions = [self._positions(x, rows) for x in (q_positions, k_positions)]  # [B N, size]
        outputs = []
        for group in self.classes:
            row, block = group.queries // count, group.queries % count
            first = (row[:, None] * heads + head) * count  # [R, H] of this row and head
            own = q[first + block[:, None]]  # [R, H, size, D]
            seen = first[..., None] + group.keys[:, None]  # [R, H, m]
            keys, values = k[seen].flatten(2, 3), v[seen].flatten(2, 3)  # [R, H, m size, D]
            added = None
            if bias is not None:
                others = positions[1][row[:, None] * count + group.keys].flatten(1)
                added = bias(own, positions[0][group.queries], others)
            outputs.append(attend(own, keys, values, mask=group.mask, bias=added, dropout=dropout))
        # [B N, H, size, D] in the order of the row
        blocks = torch.cat(outputs)[self.order] if len(outputs) > 1 else outputs[0][self.order]
        blocks = blocks.view(rows, count, heads, self.size, width).transpose(1, 2)
        return blocks.flatten(2, 3)[:, :, :length]

    def hidden(self, like: Tensor) -> Tensor | None:
        return Mask.of(self.pattern, self.seq).hidden(like)

    def _blocks(self, x: Tensor) -> Tensor:
        """[B, H, T, D] -> [B H N, size, D]."""
        x = F.pad(x, (0, 0, 0, -x.shape[2] % self.size))
        return x.reshape(-1, self.size, x.shape[3])

    def _positions(self, positions: Tensor, rows: int) -> Tensor:
        """[B | 1, T] -> [B N, size]; filled up with the position of the last token."""
        last = positions[:, -1:].expand(-1, -positions.shape[1] % self.size)
        return torch.cat([positions, last], 1).expand(rows, -1).reshape(-1, self.size)


def _make_plan(pattern: Pattern, seq: Seq, needed: Tensor, size: int) -> BlockPlan:
    """The plan if `needed [B | 1, N, N]` says which blocks of keys a block of queries needs."""
    needed = needed.expand(len(seq.ids), -1, -1)
    counts = needed.sum(-1).flatten()  # [B N]
    # the needed blocks of keys first, from left to right
    order = needed.to(torch.uint8).argsort(dim=-1, descending=True, stable=True).flatten(0, 1)
    classes = []
    for queries, most in _classes(counts):
        keys = order[queries, :most]
        needed_keys = torch.arange(most, device=keys.device) < counts[queries, None]
        mask = _mask(pattern, seq, queries, keys, needed_keys, size)
        classes.append(BlockClass(queries, keys, mask))
    every = torch.cat([group.queries for group in classes])
    index_of = torch.empty_like(every)
    index_of[every] = torch.arange(len(every), device=every.device)
    return BlockPlan(pattern, seq, size, tuple(classes), index_of)


def _classes(counts: Tensor) -> list[tuple[Tensor, int]]:
    """(numbers of blocks of queries, most blocks of keys that one needs) of each class: a class
    holds those that need more than half of what its largest member needs.
    """
    classes = []
    left = torch.ones_like(counts, dtype=torch.bool)
    while bool(left.any()):
        most = int(counts[left].max())
        members = left & (counts * 2 > most) if most > 1 else left
        classes.append((members.nonzero()[:, 0], max(1, most)))
        left = left & ~members
    return classes


def _mask(
    pattern: Pattern, seq: Seq, queries: Tensor, keys: Tensor, needed_keys: Tensor, size: int
) -> Mask:
    """The mask for the blocks `queries [R]` and `keys [R, m]`; only `needed_keys [R, m]` count."""
    length, count = seq.ids.shape[1], -(-seq.ids.shape[1] // size)
    inside = torch.arange(size, device=queries.device)
    q = (queries % count)[:, None] * size + inside  # [R, size]
    k = (keys[..., None] * size + inside).flatten(1)  # [R, m size]
    real = needed_keys.repeat_interleave(size, 1) & (k < length)
    b = (queries // count).view(-1, 1, 1, 1)
    h = torch.arange(pattern.heads, device=queries.device).view(1, -1, 1, 1)
    q, k = q.clamp(max=length - 1)[:, None, :, None], k.clamp(max=length - 1)[:, None, None, :]
    allowed = pattern.bind(seq)(b, h, q, k) & real[:, None, None, :]
    return Mask(allowed.expand(len(queries), -1, size, -1))


def make_key(value: object) -> Hashable:
    """A key that is equal for patterns with equal settings."""
    if isinstance(value, Pattern):
        return (type(value), *((name, make_key(part)) for name, part in vars(value).items()))
    if isinstance(value, Mapping):
        return tuple((name, make_key(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(make_key(part) for part in value)
    return value if isinstance(value, Hashable) else id(value)
