"""Learned spans of attention heads (Sukhbaatar et al., 2019, arXiv:1905.07799)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.values import Amount, Count, Number, Rate
from plmctl.nn.restrained import Noted, Restrained
from plmctl.nn.starting import Starting


class AdaptiveSpan(Starting, Restrained):
    """z = S share of each head, the tokens that it looks back with full weight, is learned.

    Its penalty is `strength` times the mean z over the heads. A share outside of [0, 1] is set back
    after each update. (Sec. 2.2.)

    Args:
        num_heads: H.
        longest: S, tokens.
        ramp: R, tokens over which the mask falls from 1 to 0.
        start: the share of S that every head begins with.
        strength: The strength of the penalty.
        learned: whether spans are; where not, all stay S and cost nothing.
    """

    term = "span"
    always = True
    measures = frozenset({"mean_span", "longest_span"})

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
        _check(ramp, strength)
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

    def forward(self, x: Tensor) -> Tensor:
        """[1, H, 1] z of all tokens."""
        return self.spans[None, :, None]

    def reach(self, spans: Tensor | None = None) -> int:
        """The greatest distance that a head sees; without weights, that of the start."""
        share = self.first if self.share.is_meta else float(self.share.detach().max())
        return _reach(self.longest * min(max(share, 0.0), 1.0), self.ramp, self.longest)

    def usual_reach(self) -> int:
        """The same."""
        return self.reach()

    def summarize(self, noted: Sequence[Tensor] = ()) -> Tensor:
        """[2, H] z, and z."""
        return self.spans.expand(2, -1)

    def penalty(self, noted: Sequence[Tensor] = ()) -> Tensor:
        return self.strength * self.spans.mean()

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        self.share.clamp_(0, 1)

    @staticmethod
    def measure(parts: Sequence[Restrained], noted: Noted) -> dict[str, Tensor]:
        return measure_spans(parts, noted)


class DynamicSpan(Starting, Restrained):
    """`z_t = S sigmoid(v x_t + b)` of each head: the span follows from the token that looks back.

    Its penalty is `strength` times the mean z over the heads and over the tokens of a row. v begins
    at 0. (Sec. 2.3.)

    Args:
        width: W, the columns of x.
        num_heads: H.
        longest: S, tokens.
        ramp: R, tokens over which the mask falls from 1 to 0.
        start: sigmoid(b) at first, the share of S that every token begins with.
        strength: The strength of the penalty.
    """

    term = "span"
    always = True
    measures = AdaptiveSpan.measures

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        longest: Count,
        ramp: Amount,
        start: Rate,
        strength: Number,
    ) -> None:
        super().__init__()
        if not 0 < start < 1:
            allowed = "more than 0 and less than 1, where spans are dynamic"
            raise ConfigError("start", start, allowed, fix="start=0.018")
        _check(ramp, strength)
        self.longest, self.ramp, self.first, self.strength = longest, ramp, start, strength
        self.unit = nn.Linear(width, num_heads)

    def start(self, generator: Generator) -> None:
        nn.init.zeros_(self.unit.weight)
        nn.init.constant_(self.unit.bias, math.log(self.first / (1 - self.first)))

    def forward(self, x: Tensor) -> Tensor:
        """[B, H, T] z of the tokens x [B, T, W], in fp32 or wider."""
        kind = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            scores = F.linear(x.to(kind), self.unit.weight.to(kind), self.unit.bias.to(kind))
            return self.longest * scores.sigmoid().transpose(1, 2)

    def reach(self, spans: Tensor | None = None) -> int:
        """The greatest distance that one of these spans sees; without them, that any token may."""
        if spans is None or spans.is_meta:
            return self.longest
        return _reach(float(spans.detach().max()), self.ramp, self.longest)

    def usual_reach(self) -> int:
        """The greatest distance that a token x = 0 sees; without weights, that of the start."""
        bias = self.unit.bias.detach()
        share = self.first if bias.is_meta else float(bias.sigmoid().max())
        return _reach(self.longest * share, self.ramp, self.longest)

    def note(self, spans: Tensor, real: Tensor | None) -> Tensor:
        """[B, 2, H], the input of `summarize`: mean and longest z over the tokens `real [B, T]` of
        each row.
        """
        if real is None:
            return torch.stack([spans.mean(-1), spans.detach().amax(-1)], 1)
        own = spans * real[:, None]
        mean = own.sum(-1) / real.sum(-1).clamp(min=1)[:, None]
        return torch.stack([mean, own.detach().amax(-1)], 1)

    def summarize(self, noted: Sequence[Tensor] = ()) -> Tensor:
        """[2, H] the mean z, and the longest, of the tokens that were read.

        Raises:
            ConfigError: Nobody has noted a pass.
        """
        if not noted:
            allowed = "false: this objective does not run the model as a whole"
            raise ConfigError("model.stack.cells.a.dynamic", True, allowed)
        rows = torch.cat(list(noted))
        return torch.stack([rows[:, 0].mean(0), rows[:, 1].amax(0)])

    def penalty(self, noted: Sequence[Tensor] = ()) -> Tensor:
        return self.strength * self.summarize(noted)[0].mean()

    @staticmethod
    def measure(parts: Sequence[Restrained], noted: Noted) -> dict[str, Tensor]:
        return measure_spans(parts, noted)


FLOOR = 1e-20  # the value of a mask of 0: no weight, compared to 1, in fp32 or wider


def log_mask(spans: Tensor, distance: Tensor, ramp: float) -> Tensor:
    """[B, H, Q, K] `log m_z`, -inf behind the ramp: softmax weights are multiplied with `m_z(x) =
    min(max((R + z - x) / R, 0), 1)` before they are normalised again, x = distance - 1.

    (Sec. 2.2; facebookresearch/adaptive-span, adaptive_span.py: the nearest token counts as
    distance 0.)

    Args:
        spans: [B | 1, H, Q | 1] z, in tokens.
        distance: [Q, K] of keys from queries.
    """
    ramps = 1 + (spans[..., None] - (distance - 1)) / ramp
    mask = ramps.clamp(0, 1)
    # a span may grow over a token whose mask is 0 by now: its weight has a gradient, log 0 has none
    held = mask + FLOOR * (mask == 0)
    return torch.where(ramps >= 0, held.log(), -torch.inf)


def measure_spans(parts: Sequence[Restrained], noted: Noted) -> dict[str, Tensor]:
    """`mean_span`, the mean over all heads of all layers, and `longest_span`, in tokens."""
    spans = torch.stack(
        [
            part.summarize(noted.get(part, ())).detach()
            for part in parts
            if isinstance(part, AdaptiveSpan | DynamicSpan)
        ]
    )
    return {"mean_span": spans[:, 0].mean(), "longest_span": spans[:, 1].max()}


def _check(ramp: float, strength: float) -> None:
    if not ramp > 0:
        raise ConfigError("ramp", ramp, "more than 0 tokens")
    if not strength >= 0:
        raise ConfigError("penalty", strength, "0 or more")


def _reach(span: float, ramp: float, longest: int) -> int:
    return min(longest, math.floor(span + ramp) + 1)  # the mask of the last may be 0
