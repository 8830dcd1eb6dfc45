"""Learned spans of attention heads (Sukhbaatar et al., 2019, arXiv:1905.07799)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.values import Amount, Count, Number, Rate
from plmctl.nn.init import Starting
from plmctl.nn.restrained import Restrained


class AdaptiveSpan(Starting, Restrained):
    """`m_z(x) = min(max((R + z - x) / R, 0), 1)`, what softmax weights are multiplied with before
    they are normalised again; z = S share of each head is learned, x = distance - 1.

    Its penalty is `strength` times the mean z over the heads. A share outside of [0, 1] is set back
    after each update. (Sec. 2.2; facebookresearch/adaptive-span, adaptive_span.py: the nearest
    token counts as distance 0.)

    Args:
        num_heads: H.
        longest: S, tokens.
        ramp: R, tokens over which the mask falls from 1 to 0.
        start: the share of S that every head begins with.
        strength: of the penalty.
        learned: whether spans are; where not, all stay S and cost nothing.
    """

    term = "span"
    always = True
    measures = frozenset({"span", "longest_span"})

    def __init__(
        self,
        *,
        num_heads: int,
        longest: Count,
        ramp: Amount,
        start: Rate,
        strength: Number,
        learned: bool = True,
    ) -> None:
        super().__init__()
        if not 0 <= start <= 1:
            raise ConfigError("start", start, "a share of the longest span, 0 to 1")
        if not ramp > 0:
            raise ConfigError("ramp", ramp, "more than 0 tokens")
        if not strength >= 0:
            raise ConfigError("penalty", strength, "0 or more")
        self.longest, self.ramp = longest, ramp
        self.first, self.strength = (start, strength) if learned else (1.0, 0.0)
        share = torch.full((num_heads,), float(self.first))
        self.share: Tensor
        if learned:
            self.share = nn.Parameter(share)
        else:
            self.register_buffer("share", share, persistent=False)

    def start(self, generator: Generator) -> None:
        self.share.data.fill_(self.first)

    @property
    def spans(self) -> Tensor:
        """[H] z, in tokens."""
        return self.longest * self.share.clamp(0, 1)

    def reach(self) -> int:
        """The greatest distance that a head sees; without weights, that of the start."""
        share = self.first if self.share.is_meta else float(self.share.detach().max())
        return min(self.longest, math.ceil(self.longest * min(max(share, 0.0), 1.0) + self.ramp))

    def log_mask(self, distance: Tensor) -> Tensor:
        """[H, ...] `log m_z` of distances [...]; -inf where the mask is 0."""
        spans = self.spans.view(-1, *[1] * distance.dim())
        mask = (1 + (spans - (distance - 1)) / self.ramp).clamp(0, 1)
        least = torch.finfo(mask.dtype).tiny
        return torch.where(mask > 0, mask.clamp(min=least).log(), -torch.inf)

    def penalty(self) -> Tensor:
        return self.strength * self.spans.mean()

    @torch.no_grad()
    def after_step(self) -> None:
        self.share.clamp_(0, 1)

    @staticmethod
    def measure(parts: Sequence[Restrained]) -> dict[str, Tensor]:
        """`span`, the mean over all heads of all layers, and `longest_span`, in tokens."""
        spans = torch.stack([part.spans for part in parts if isinstance(part, AdaptiveSpan)])
        return {"span": spans.detach().mean(), "longest_span": spans.detach().max()}
