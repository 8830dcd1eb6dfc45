"""The patterns of attention of a model: which token may see which."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

import torch
from torch import Tensor

from plmctl.analysis.measure import Measure
from plmctl.analysis.stacks import StackReader, find_length, find_readers, list_cells
from plmctl.artifacts.loading import Loaded
from plmctl.attention.kernels.base import Kernel
from plmctl.attention.patterns.base import Full, Pattern, make_row
from plmctl.attention.patterns.key import make_key
from plmctl.nn.cells.base import Cell

LONGEST = 4096  # tokens of a row that is evaluated: all pairs take 0.1 s for a pattern
CELLS = 64  # lines and columns of a picture
BEGIN = 256  # tokens of the beginning of a longer row, which is shown larger
MOST = 9  # pictures


@dataclass(frozen=True)
class Seen:
    """Who sees whom in a full row of one document.

    Args:
        part: The part of the model.
        layers: The layers, from 1.
        heads: The heads, from 0; empty where all see the same.
        segments: The segments of the two halves of the row; empty where they do not matter.
        length: The tokens of the row.
        shares: [n, n] the share of pairs that are seen, by range of queries and of keys.
        begin: the same for the first `BEGIN` tokens alone; None if there are not more.
        seen: the share of all pairs.
        computed: the share of all pairs whose scores are computed, in the heads of the layer
            together.
    """

    part: str
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    segments: tuple[int, ...]
    length: int
    shares: Tensor
    begin: Tensor | None
    seen: float
    computed: float


@dataclass(frozen=True)
class SeenPatterns(Measure):
    """The patterns of a model that forbids something.

    Args:
        shown: The first different ones, at most `MOST`.
        count: The number of all different ones.
    """

    name: ClassVar[str] = "patterns"
    shown: list[Seen]
    count: int

    @classmethod
    def of(cls, opened: Loaded) -> Self | None:
        shown: list[Seen] = []
        count = 0
        for name, part in find_readers(opened.model.backbone).items():
            length = min(LONGEST, find_length(opened, part))
            for layers, heads, segments, pattern in _list_patterns(part):
                halves = _halve(segments or (0, 1), length)
                if isinstance(pattern.simplify(make_row(pattern, halves)), Full):
                    continue
                shares, seen = evaluate(pattern, halves) if count < MOST else (torch.zeros(0), 0.0)
                if seen == 1:
                    continue
                count += 1
                if count > MOST:
                    continue
                begin = evaluate(pattern, halves, tokens=BEGIN)[0] if length > BEGIN else None
                computed = _share_computed(part, layers[0], length)
                shown.append(
                    Seen(name, layers, heads, segments, length, shares, begin, seen, computed)
                )
        return cls(shown, count) if shown else None


def _halve(segments: tuple[int, ...], length: int) -> Tensor:
    """[T] the segments of the tokens of a row, whose halves are of these two."""
    return torch.tensor(segments).repeat_interleave(-(-length // 2))[:length]


def _share_computed(part: StackReader, layer: int, length: int) -> float:
    """The share of all pairs whose scores the kernel of a part computes."""
    kernel = getattr(part, "kernel", None)
    if not isinstance(kernel, Kernel):
        return 1.0
    return kernel.share(part.pattern.at_layer(layer - 1), length)


def _list_patterns(
    part: StackReader,
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Pattern]]:
    """(layers, heads, segments, pattern) for each different pattern of the cells that go by it."""
    asking = {layer for layer, cell in list_cells(part.stack) if _goes_by_pattern(cell)}
    layers: dict[Hashable, list[int]] = {}
    for layer in sorted(asking):
        layers.setdefault(make_key(part.pattern.at_layer(layer - 1)), []).append(layer)
    for same in layers.values():
        pattern = part.pattern.at_layer(same[0] - 1)
        heads: dict[Hashable, list[int]] = {}
        for head in range(pattern.heads):
            heads.setdefault(make_key(pattern.of_head(head)), []).append(head)
        for alike in heads.values():
            own = () if len(heads) == 1 else tuple(alike)
            for segments in _list_segments(part, pattern):
                yield tuple(same), own, segments, pattern.of_head(alike[0])


def _goes_by_pattern(cell: object) -> bool:
    """Whether a cell, or one inside, lets tokens of the text see each other as the pattern says."""
    return any(
        inside.facts.computes == "attention"
        and inside.facts.ahead is None
        and "source" not in inside.facts.reads
        for inside in (cell.modules() if isinstance(cell, Cell) else ())
        if isinstance(inside, Cell)
    )


def _list_segments(part: StackReader, pattern: Pattern) -> list[tuple[int, ...]]:
    """The segments of rows in which a pattern that reads them may allow something else."""
    if "tracks.segment" not in pattern.needs:
        return [()]
    table = getattr(getattr(part, "embedding", None), "segment", None)
    alone = [(n, n) for n in range(table.num_embeddings)] if table is not None else []
    both = [pattern.prefix_segments] if pattern.prefix_segments else []
    return [*alone, *both] or [(0, 1)]


@torch.inference_mode()
def evaluate(
    pattern: Pattern, segments: Tensor, cells: int = CELLS, tokens: int | None = None
) -> tuple[Tensor, float]:
    """([n, n] the share of pairs that one pattern of a head allows, by range of queries and of
    keys; the share of all) in a full row with these `segments [T]`; n is at most `cells`.

    Args:
        tokens: only the first so many of the row.
    """
    length, row = tokens or len(segments), make_row(pattern, segments)
    n = min(cells, length)
    edges = [length * number // n for number in range(n + 1)]
    allowed, zero = pattern.simplify(row).bind(row), torch.zeros(1, 1, 1, 1, dtype=torch.long)
    keys, ends = torch.arange(length).view(1, 1, 1, -1), torch.tensor(edges)
    counts = []
    for begin, end in pairwise(edges):
        queries = torch.arange(begin, end).view(1, 1, -1, 1)
        seen = allowed(zero, zero, queries, keys).expand(1, 1, end - begin, length)[0, 0]
        total = torch.cat([torch.zeros(1), seen.sum(0).cumsum(0)])  # [tokens + 1]
        counts.append(total[ends].diff())
    pairs = torch.stack(counts)  # [n, n]
    sizes = ends.diff()
    return pairs / (sizes[:, None] * sizes), float(pairs.sum()) / length**2
