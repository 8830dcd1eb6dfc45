"""The keys that each block of queries needs: the structure of a pattern in one batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from plmctl.attention.patterns.base import Pattern, View, make_row, spread
from plmctl.attention.patterns.key import make_key
from plmctl.attention.patterns.padding import Padding
from plmctl.core.batch import Seq

BLOCK = 128  # queries that are computed together, at most
CELL = 8  # tokens; keys are chosen by so many
# to gather a key takes about as long as so many scores, forward and backward:
# benchmarks/attention_kernels.py
GATHER = 32


@dataclass(frozen=True, eq=False)
class Tiling:
    """The needed keys of each block of `size` queries, in cells of `cell` keys.

    The rows of `seq` are those of the batch; for `gap` > 1 they are every `gap`-th token of them,
    from each of the first `gap`. There are B rows of T tokens in either case.
    """

    pattern: Pattern  # the predicate of these rows, the same in all heads
    seq: Seq
    gap: int
    size: int
    cell: int
    counts: Tensor  # [B N] cells that a block of queries needs
    order: Tensor  # [B N, n] numbers of cells, the needed ones first, from left to right

    @classmethod
    def of(cls, view: View, seq: Seq, block: int) -> Tiling | None:
        """The tiling of a view with blocks of at most `block` queries, of the size that takes the
        least time; None: it cannot be had.
        """
        gap, pattern = view
        if gap > 1:
            thinned, seq = pattern.thin(gap, seq), spread_tracks(seq, gap)
            if thinned is None:
                return None
            pattern = (thinned & Padding()).simplify(seq)
        cell = math.gcd(block, CELL)
        cells = pattern.blocks(seq, cell).expand(seq.ids.shape[0], -1, -1)  # [B, n, n]
        size, needed = min(
            _cut(cells, block), key=lambda choice: int(choice[1].sum()) * (choice[0] + GATHER)
        )
        order = needed.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
        return cls(pattern, seq, gap, size, cell, needed.sum(-1).flatten(), order.flatten(0, 1))

    @cached_property
    def classes(self) -> list[tuple[Tensor, int]]:
        """(numbers of blocks of queries, most cells of keys that one needs) of each class. Each
        block of a class needs more than half as many cells as its largest member.
        """
        classes, counts = [], self.counts
        left = torch.ones_like(counts, dtype=torch.bool)
        while bool(left.any()):
            most = int(counts[left].max())
            members = left & (counts * 2 > most) if most > 1 else left
            classes.append((members.nonzero()[:, 0], max(1, most)))
            left = left & ~members
        return classes

    @property
    def scores(self) -> int:
        """How many scores are computed."""
        return sum(len(rows) * self.size * most * self.cell for rows, most in self.classes)


def cut_tiles(pattern: Pattern, seq: Seq, block: int) -> list[Tiling]:
    """The tilings that together compute a pattern: one of it as it is, or one for each of its
    views, whichever computes fewer scores.
    """
    whole = Tiling.of(View(1, pattern), seq, block)
    assert whole is not None
    views = pattern.views()
    if all(view.gap == 1 for view in views):
        return [whole]
    tiles = [Tiling.of(view, seq, block) for view in views]
    apart = [tiling for tiling in tiles if tiling is not None]
    fewer = sum(tiling.scores for tiling in apart) < whole.scores
    return apart if len(apart) == len(tiles) and fewer else [whole]


def group_heads(pattern: Pattern) -> list[tuple[list[int], Pattern]]:
    """(numbers of heads, what they see) of all heads that see the same."""
    groups: dict[object, tuple[list[int], Pattern]] = {}
    for head in range(pattern.heads):
        part = pattern.of_head(head)
        if part.heads > 1:  # a pattern that does not say what one head sees
            return [(list(range(pattern.heads)), pattern)]
        groups.setdefault(make_key(part), ([], part))[0].append(head)
    return list(groups.values())


def share_of_blocks(pattern: Pattern, length: int, size: int = BLOCK) -> float:
    """The share of the scores of a full row that lie in blocks of `size` queries and keys. Each
    head computes only the blocks that it needs.
    """
    row = make_row(pattern, torch.zeros(length, dtype=torch.long, device="cpu"))
    needed = 0
    heads = 0
    for group, part in group_heads(pattern.simplify(row)):
        needed += len(group) * int(part.simplify(row).blocks(row, size).sum())
        heads += len(group)
    return min(1.0, needed * size**2 / (heads * length**2))


def spread_tracks(seq: Seq, gap: int) -> Seq:
    """The rows of every `gap`-th token, with their tracks."""
    rows, length = seq.ids.shape[:2]
    tracks = {name: spread(track.expand(rows, -1), gap) for name, track in seq.tracks.items()}
    tracks["real"] = spread(seq.real.expand(rows, -1), gap, 0)
    if "document" in seq.tracks:
        tracks["document"] = spread(seq.tracks["document"].expand(rows, -1), gap, -1)
    ids = tracks["real"].long()
    return Seq(ids, ids.sum(1), tracks, full=seq.full and length % gap == 0)


def _cut(cells: Tensor, block: int) -> Iterator[tuple[int, Tensor]]:
    """(size, [B, N, n] which cells a block of `size` queries needs) for `block` and its halves."""
    size, cell = block, math.gcd(block, CELL)
    while size % cell == 0 and size:
        times = size // cell
        more = cells.new_zeros(cells.shape[0], -cells.shape[1] % times, cells.shape[2])
        yield size, torch.cat([cells, more], 1).unflatten(1, (-1, times)).any(2)
        size //= 2
