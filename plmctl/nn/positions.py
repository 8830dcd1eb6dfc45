"""Where am I: what the place of a token adds to embeddings, queries and keys, scores, or the stream between layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from plmctl.errors import ConfigError


class Position(nn.Module):
    """Four hooks, no-ops here; a subclass overrides what its scheme does. Places are integer tensors [B | 1, T]."""

    max_length: int | None = None  # longest row; None = any

    def embed(self, x: Tensor, places: Tensor) -> Tensor:
        """[B, T, W] token embeddings -> the same with their places."""
        return x

    def rotate(self, q: Tensor, k: Tensor, q_places: Tensor, k_places: Tensor) -> tuple[Tensor, Tensor]:
        """[B, H, T, D] queries and keys before their product."""
        return q, k

    def bias(self, q: Tensor, q_places: Tensor, k_places: Tensor) -> Tensor | None:
        """[B | 1, H, Tq, Tk] added to the scaled scores, or None."""
        return None

    def every_step(self, x: Tensor, step: int) -> Tensor:
        """[B, T, W] the stream before layer `step` (Universal Transformer)."""
        return x


class NoPosition(Position):
    """No places at all: a causal pattern alone tells them apart (Haviv et al., 2022, arXiv:2203.16634)."""


class Learned(Position):
    """`x + table[place]`, one learned vector for each place (Devlin et al., 2019, arXiv:1810.04805, sec. 3)."""

    def __init__(self, *, width: int, max_length: int) -> None:
        super().__init__()
        self.max_length = max_length
        self.table = nn.Embedding(max_length, width)

    def embed(self, x: Tensor, places: Tensor) -> Tensor:
        if x.shape[1] > self.table.num_embeddings:
            longest = self.table.num_embeddings
            raise ConfigError("format.max_length", x.shape[1], f"at most {longest}, the places that this model has learned")
        return x + self.table(places)


class Sinusoidal(Position):
    """`x + [sin(p w_0) ... | cos(p w_0) ...]`, w_i = base^(-2i / W) (Vaswani et al., 2017, arXiv:1706.03762, sec. 3.5).

    Differs: all sines first, then all cosines (as in the authors' code), not interleaved.
    """

    def __init__(self, *, width: int, base: float = 10000.0) -> None:
        super().__init__()
        if width % 2:
            raise ConfigError("size.width", width, "must be even for sinusoidal places")
        self.width, self.base = width, base

    def embed(self, x: Tensor, places: Tensor) -> Tensor:
        angles = _angles(places, self.width, self.base)
        return x + torch.cat([angles.sin(), angles.cos()], -1).to(x.dtype)


class Rotary(Position):
    """Turns each pair (i, i + D/2) of q and k by `place * base^(-2i / D)` (Su et al., 2021, arXiv:2104.09864, sec. 3.2.2).

    Differs: pairs are half a head apart (GPT-NeoX), not neighbours; a fixed permutation of the head's coordinates.
    """

    def __init__(self, *, base: float = 10000.0) -> None:
        super().__init__()
        self.base = base

    def rotate(self, q: Tensor, k: Tensor, q_places: Tensor, k_places: Tensor) -> tuple[Tensor, Tensor]:
        return self._turn(q, q_places), self._turn(k, k_places)

    def _turn(self, x: Tensor, places: Tensor) -> Tensor:
        angles = _angles(places, x.shape[-1], self.base)[:, None]  # [B | 1, 1, T, D / 2]
        sin, cos = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
        left, right = x.chunk(2, -1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


class ALiBi(Position):
    """Score `- slope_h |q - k|`, slopes a geometric series down to 2^-8 (Press et al., 2022, arXiv:2108.12409, sec. 3).

    Differs: |q - k|, so that it also serves patterns that look ahead; num_heads that is no power of two continues the series.
    """

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def bias(self, q: Tensor, q_places: Tensor, k_places: Tensor) -> Tensor | None:
        distance = (q_places[:, :, None] - k_places[:, None, :]).abs()[:, None]  # [B | 1, 1, Tq, Tk]
        heads = torch.arange(1, self.num_heads + 1, device=q.device)
        slopes = torch.exp2(-8.0 * heads / self.num_heads)
        return (-slopes[:, None, None] * distance).to(q.dtype)


def _angles(places: Tensor, width: int, base: float) -> Tensor:
    """[B | 1, T, width / 2] place times frequency, in fp32."""
    step = torch.arange(0, width, 2, device=places.device, dtype=torch.float32)
    return places[..., None].float() * torch.exp(step * (-math.log(base) / width))
