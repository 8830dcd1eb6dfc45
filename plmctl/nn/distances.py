"""Learned vectors of distances (Sukhbaatar et al., 2019)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.nn.positions import Position
from plmctl.nn.starting import Starting


@part_of("position")
class LearnedDistances(Position, Starting):
    """Score `q . e_x / sqrt(D)`, one learned vector for each distance x = q - k from 1 to
    `longest`, the same in all layers and heads.

    Greater distances count as `longest`; a token itself and later ones get nothing. First vectors:
    N(0, 1). (Sukhbaatar et al., 2019, arXiv:1905.07799, sec. 2.1; facebookresearch/adaptive-span,
    models.py: key_pe.)

    Args:
        width: The width of the stream.
        num_heads: D is `width / num_heads` where `head_width` is null.
        longest: tokens.
        head_width: D, if the heads have another width.
    """

    def __init__(
        self, *, width: int, num_heads: int, longest: Count, head_width: Count | None = None
    ) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.zeros(longest, head_width or width // num_heads))

    def start(self, generator: Generator) -> None:
        self.vectors.data.normal_(generator=generator)

    def bias(self, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        distance = q_positions[:, :, None] - k_positions[:, None, :]  # [B | 1, Tq, Tk]
        q = q * q.shape[-1] ** -0.5
        if distance.shape[0] == 1 and _consecutive(q_positions[0]) and _consecutive(k_positions[0]):
            # queries and keys in a row share diagonals: each distance is multiplied once
            high, low = int(distance.max()), int(distance.min())
            occurring = torch.arange(high, low - 1, -1, device=q.device)
            return _shift(q @ self._table(occurring).to(q.dtype).T, distance.shape[2])
        farthest = max(1, min(len(self.vectors), int(distance.max())))
        occurring = torch.arange(farthest + 1, device=q.device)
        scores = q @ self._table(occurring).to(q.dtype).T  # [B, H, Tq, farthest + 1]
        index = distance.clamp(0, farthest)[:, None].expand(*scores.shape[:2], -1, -1)
        return scores.gather(-1, index)

    def _table(self, distance: Tensor) -> Tensor:
        """[n, D] the vectors of distances [n]."""
        vectors = self.vectors[(distance - 1).clamp(0, len(self.vectors) - 1)]
        return vectors * (distance > 0).to(vectors.dtype)[:, None]


def _consecutive(positions: Tensor) -> bool:
    return bool((positions.diff() == 1).all())


def _shift(scores: Tensor, keys: int) -> Tensor:
    """[B, H, Tq, Tk] of `scores [B, H, Tq, Tq + Tk - 1]` by distance, the farthest first: row r
    begins at column Tq - 1 - r. The same numbers in rows of one less are shifted so (Dai et al.,
    2019, arXiv:1901.02860, appendix B).
    """
    rows, columns = scores.shape[-2], scores.shape[-1]
    if columns == keys:  # one query
        return scores
    flat = scores.flatten(-2)[..., rows - 1 : rows - 1 + rows * (columns - 1)]
    return flat.unflatten(-1, (rows, columns - 1))[..., :keys]
