"""Vectors of distances that all layers share, for disentangled attention (He et al., 2021)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.dropout import Dropout
from plmctl.nn.positions import Position, check_rows


@runtime_checkable
class DistanceVectors(Protocol):
    """A position scheme with a vector for each distance, which cells project."""

    def number(self, distance: Tensor) -> Tensor:
        """The row of the table for each `distance` = query - key."""
        ...

    def read(self) -> Tensor:
        """[R, W] the table, with dropout."""
        ...


@part_of("position")
class Disentangled(Position):
    """One learned vector of the model's width for each distance x = query - key: row `clip(b(x) +
    S, 0, 2 S - 1)` of a table `[2 S, W]`. Every layer makes its own queries and keys of it.

    b(x) = x and S = `max_distance` = M without `buckets` (He et al., 2021, arXiv:2006.03654, sec.
    3.1). With them S = `buckets`. Up to S / 2 each distance has a row; beyond, a row serves ranges
    that widen up to M: b(x) = sign(x) (m + ceil(ln(|x| / m) / ln((M - 1) / m) (m - 1))), m =
    floor(S / 2) (DeBERTa 2; microsoft/DeBERTa, da_utils.py, make_log_bucket_position).
    Differs: distances of M and more behind the key have row 0, as in `transformers`.

    Args:
        width: Columns of the embedding, to which `absolute` positions are added.
        max_distance: M, in tokens; null: no vectors, for cells without such scores.
        buckets: S; null: no ranges.
        norm: The norm of the table; null: none.
        dropout: The rate on the table, drawn anew in each layer.
        vector_width: W, if the embedding is narrower than the model.
        absolute: The number of absolute positions in the input; null: none, as published.
    """

    def __init__(
        self,
        *,
        width: int,
        max_distance: Count | None = 512,
        buckets: Count | None = None,
        norm: Callable[..., nn.Module] | None = None,
        dropout: DropoutRate = 0.1,
        vector_width: Count | None = None,
        absolute: Count | None = None,
    ) -> None:
        super().__init__()
        middle = (buckets or 4) // 2
        if buckets is not None and (middle < 1 or (max_distance or 0) - 1 <= middle):
            allowed = f"more than {middle + 1}, the distances that have rows of their own, and 2"
            raise ConfigError("position.max_distance", max_distance, allowed)
        self.span, self.buckets = buckets or max_distance or 0, buckets
        self.max_distance = max_distance or 0
        self.vectors = nn.Embedding(2 * self.span, vector_width or width) if self.span else None
        self.norm = norm(width=vector_width or width) if norm else nn.Identity()
        self.dropout = Dropout(rate=dropout)
        self.max_length = absolute
        self.table = nn.Embedding(absolute, width) if absolute else None

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        if self.table is None:
            return x
        check_rows(x, self.table, positions)
        return x + self.table(positions)

    def bucket(self, distance: Tensor) -> Tensor:
        """b of each `distance` = query - key."""
        if self.buckets is None:
            return distance
        middle = self.buckets // 2
        # in fp32, as in `transformers`: the logarithm of the limit itself is exact there
        ratio = torch.log(distance.abs().clamp(min=middle).float() / middle)
        ratio = ratio / math.log((self.max_distance - 1) / middle)
        far = torch.sign(distance) * (middle + torch.ceil(ratio * (middle - 1)).to(distance.dtype))
        return torch.where(distance.abs() <= middle, distance, far)

    def number(self, distance: Tensor) -> Tensor:
        return (self.bucket(distance) + self.span).clamp(0, 2 * self.span - 1)

    def read(self) -> Tensor:
        if self.vectors is None:
            allowed = "a number of tokens, since cells score distances"
            raise ConfigError("position.max_distance", None, allowed)
        return self.dropout(self.norm(self.vectors.weight))
