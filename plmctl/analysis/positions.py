"""The effects of positions in a model: the likeness of their vectors, and biases by distance.

The parts themselves answer: a position adds its vector to a stream of zeros. Its addition to the
scores of a query of zeros depends on the distance alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.analysis.measure import Measure
from plmctl.analysis.stacks import StackReader, find_length, find_readers, list_cells
from plmctl.artifacts.loading import Loaded
from plmctl.nn.cells.base import Distanced
from plmctl.nn.positions import Position

CELLS = 48  # lines and columns of a map
FARTHEST = 128  # tokens between a query and a key whose scores are shown, on both sides together
LAYERS = 3  # maps of different layers: the first, one in the middle, the last


@dataclass(frozen=True)
class Likeness:
    """How alike the vectors of positions are.

    Args:
        part: The part of the model.
        place: The step at which they act.
        cosines: [n, n] the means by range of positions.
        by_distance: {distance: the mean cosine of all positions that are so far apart}.
    """

    part: str
    place: str
    length: int
    cosines: Tensor
    by_distance: dict[int, float]


@dataclass(frozen=True)
class Bias:
    """The bias that every query adds to the scores of keys, by their distance.

    Args:
        part: The part of the model.
        place: The step at which it acts.
        offsets: position of the key - position of the query, the least first.
        added: [H, n] by head and offset.
    """

    part: str
    place: str
    offsets: list[int]
    added: Tensor


@dataclass(frozen=True)
class PositionEffects(Measure):
    """The effects of positions in a model.

    Args:
        likeness: A map for each part of the model where vectors of positions act.
        biases: The numbers that positions, and cells that count distances, add to scores.
    """

    name: ClassVar[str] = "positions"
    likeness: list[Likeness]
    biases: list[Bias]

    @classmethod
    @torch.inference_mode()
    def of(cls, opened: Loaded) -> Self | None:
        parts = find_readers(opened.model.backbone).items()
        lengths = {name: find_length(opened, part) for name, part in parts}
        likeness = [
            Likeness(name, where, len(vs), average_cosines(vs), average_by_distance(vs))
            for name, part in parts
            for where, vs in _list_vectors(part, lengths[name])
        ]
        biases = [bias for name, part in parts for bias in _measure_bias(name, part, lengths[name])]
        return cls(likeness, biases) if likeness or biases else None


def _measure_bias(name: str, part: StackReader, length: int) -> Iterator[Bias]:
    length, ahead = min(FARTHEST, length), part.pattern.looks_ahead()
    last = min(length - 1, FARTHEST // 2) if ahead else 0
    offsets = torch.arange(-last if ahead else 1 - length, last + 1)
    for place, added in _list_biases(part, offsets):
        if bool((added != added[:, :1]).any()):  # softmax ignores what all keys share
            yield Bias(name, place, offsets.tolist(), added)


def average_cosines(vectors: Tensor, cells: int = CELLS) -> Tensor:
    """[n, n] the mean cosine of `vectors [T, W]` of one range of positions with those of another;
    n is at most `cells`.
    """
    units = F.normalize(vectors.double(), dim=-1)
    n = min(cells, len(units))
    edges = [len(units) * number // n for number in range(n + 1)]
    # the mean of products is the product of means
    means = torch.stack([units[a:b].mean(0) for a, b in pairwise(edges)])
    return means @ means.T


def average_by_distance(vectors: Tensor) -> dict[int, float]:
    """{distance 1, 2, 4, ...: the mean cosine of `vectors [T, W]` that are so far apart}."""
    units = F.normalize(vectors.double(), dim=-1)
    distances = [1 << n for n in range(len(units).bit_length()) if 1 << n < len(units)]
    return {d: float((units[d:] * units[:-d]).sum(-1).mean()) for d in distances}


def _list_vectors(part: StackReader, length: int) -> Iterator[tuple[str, Tensor]]:
    """(where they act, the vectors [T, ...] of the first `length` positions)."""
    position = getattr(part, "position", None)
    if not isinstance(position, Position):
        return
    places, like = torch.arange(length)[None], next(part.stack.parameters())
    width = getattr(getattr(part, "embedding", None), "table_width", _width(part))
    added = position.embed(like.new_zeros(1, length, width), places)[0]
    if bool(added.any()):
        yield "added to the embeddings", added
    before = None
    for layer in _choose_layers(part.stack.num_layers):
        zeros = like.new_zeros(1, length, _width(part))
        step = position.every_step(zeros, layer, places)[0]
        if bool(step.any()) and (before is None or not torch.equal(step, before)):
            yield f"before layer {layer + 1}", step
        before = step
    heads = _head_width(part)
    ones = like.new_ones(1, 1, length, heads)
    before = ones
    for layer in _choose_layers(part.stack.num_layers):
        turned, _ = position.at_layer(layer).rotate(ones, ones, places, places)
        if not torch.equal(turned, before):
            where = f" of layer {layer + 1}" if position.layers > 1 else ""
            yield f"turns queries and keys{where}", turned[0, 0]
        before = turned


def _list_biases(part: StackReader, offsets: Tensor) -> Iterator[tuple[str, Tensor]]:
    """(where it acts, [H, n] what is added to the scores of keys at `offsets [n]`)."""
    position = getattr(part, "position", None)
    like = next(part.stack.parameters())
    first = -int(offsets.min())  # so that no position is below 0
    if isinstance(position, Position):
        q = like.new_zeros(1, 1, 1, _head_width(part))
        added = position.bias(q, torch.tensor([[first]]), offsets[None] + first)
        if added is not None:
            yield "all layers", added[0, :, 0]
    clamp = getattr(part, "clamp_len", None) or len(offsets)  # greater distances count as this one
    own = [
        (layer, cell.bias_by_distance(-offsets.clamp(-clamp, clamp)))
        for layer, cell in list_cells(part.stack)
        if isinstance(cell, Distanced)
    ]
    for number in _choose_layers(len(own)):
        layer, bias = own[number]
        yield f"layer {layer}", bias


def _choose_layers(count: int) -> list[int]:
    """The first, the last and those between of `count` layers, at most LAYERS; none of none."""
    last = count - 1
    return sorted({round(n * last / (LAYERS - 1)) for n in range(LAYERS)}) if count else []


def _width(part: StackReader) -> int:
    """Columns of the stream."""
    stack = part.stack
    return int(getattr(part, "width", 0)) // stack.widening


def _head_width(part: StackReader) -> int:
    """Columns of a head; of a stack without heads, those of the stream."""
    widths = (getattr(cell, "head_width", None) for _, cell in list_cells(part.stack))
    return next((width for width in widths if width), _width(part))
