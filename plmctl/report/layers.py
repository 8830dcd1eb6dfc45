"""How far each layer moves its input: distance and angle between the states before and after it
(Lan et al., 2020, fig. 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from plmctl.artifacts.loading import Loaded
from plmctl.core.errors import DataError
from plmctl.report.sentences import SENTENCES, batch_sentences


@dataclass(frozen=True)
class Move:
    """The change that one layer makes to its input, averaged over tokens."""

    distance: float  # L2
    angle: float  # degrees


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


@torch.inference_mode()
def measure_layers(loaded: Loaded, sentences: Sequence[str] = SENTENCES) -> tuple[list[Move], int]:
    """(the moves of every layer of a trained model, the number of tokens of `sentences`, special
    ones included).
    """
    batch, rows = batch_sentences(loaded, sentences)
    hidden = loaded.model(batch, record=frozenset({"hidden"}))
    if not hidden.recorded:
        raise DataError("this model does not record the states between its layers")
    return measure_moves(hidden.recorded["hidden"], batch.text.real), sum(map(len, rows))
