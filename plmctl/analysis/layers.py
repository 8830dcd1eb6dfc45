"""How far each layer moves its input: distance and angle between the states before and after it
(Lan et al., 2020, fig. 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

import torch
from torch import Tensor

from plmctl.analysis.measure import Measure
from plmctl.analysis.sample import batch_text
from plmctl.artifacts.loading import Loaded
from plmctl.core.errors import DataError


@dataclass(frozen=True)
class Move:
    """The change that one layer makes to its input, averaged over tokens."""

    distance: float  # L2
    angle: float  # degrees


@dataclass(frozen=True)
class LayerMoves(Measure):
    """The moves of all layers, averaged over the tokens of a text.

    Args:
        moves: The first layer first.
        tokens: The number of tokens, special ones included.
        about: The source of the rows, with remarks on unknown tokens and ends that were not read.
    """

    name: ClassVar[str] = "layers"
    moves: list[Move]
    tokens: int
    about: str

    @classmethod
    @torch.inference_mode()
    def of(cls, opened: Loaded, sentences: Sequence[str] = ()) -> Self:
        """Measure a model on sentences, without any on rows of the run's own data."""
        batch, about = batch_text(opened, sentences)
        hidden = opened.model(batch, record=frozenset({"hidden"}))
        if not hidden.recorded:
            raise DataError("this model does not record the states between its layers")
        moves = measure_moves(hidden.recorded["hidden"], batch.text.real)
        return cls(moves, int(batch.text.real.sum()), about)


def measure_moves(states: Sequence[Tensor], real: Tensor) -> list[Move]:
    """For each layer's input x and output y: the means of `|y - x|` and of `arccos(x . y / |x|
    |y|)` over the real tokens.

    states: L + 1 of [B, T, W], the embedding output first; real [B, T]. (Lan et al., 2020,
    arXiv:1909.11942, fig. 1.) The angle is taken as `2 atan2(|u - v|, |u + v|)` of the unit vectors
    u, v, which is exact for small ones too.
    """
    moves = []
    for x, y in pairwise(states):
        x, y = x[real].double(), y[real].double()
        u, v = (z / z.norm(dim=-1, keepdim=True) for z in (x, y))
        angle = torch.rad2deg(2 * torch.atan2((u - v).norm(dim=-1), (u + v).norm(dim=-1)))
        moves.append(Move(float((y - x).norm(dim=-1).mean()), float(angle.mean())))
    return moves
