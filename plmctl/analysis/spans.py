"""The spans that the heads of a model have learned (Sukhbaatar et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from plmctl.analysis.measure import Measure
from plmctl.analysis.sample import batch_held_out
from plmctl.artifacts.loading import Loaded
from plmctl.nn.spans import AdaptiveSpan, DynamicSpan
from plmctl.nn.stack import Stack


@dataclass(frozen=True)
class TokenSpans:
    """The spans of the tokens of one row, each the mean over all heads of all layers.

    Args:
        tokens: The tokens, without padding.
        about: The text that was read.
    """

    tokens: list[str]
    spans: list[float]
    about: str


@dataclass(frozen=True)
class HeadSpans(Measure):
    """How far the heads of a model look back, in tokens.

    Args:
        layers: The spans by layer and head; where they are dynamic, the mean over tokens.
        longest: The longest possible span.
        ramp: The tokens behind it over which weights fall to 0.
        row: The spans of the tokens of one row; None where tokens have no spans of their own.
    """

    name: ClassVar[str] = "spans"
    layers: list[list[float]]
    longest: int
    ramp: float
    row: TokenSpans | None = None

    @classmethod
    def of(cls, opened: Loaded) -> Self | None:
        """Measure a model; dynamic spans are those of rows that its run held out."""
        stacks = [part for part in opened.model.backbone.modules() if isinstance(part, Stack)]
        soft = [
            part
            for stack in stacks
            for step in stack.steps
            for part in stack.block(step).modules()
            if isinstance(part, AdaptiveSpan | DynamicSpan)
        ]
        if not soft:
            return None
        dynamic = [part for part in soft if isinstance(part, DynamicSpan)]
        spans, row = _read(opened, dynamic) if dynamic else ({}, None)
        layers = [
            (spans[part] if isinstance(part, DynamicSpan) else part.spans.detach()).tolist()
            for part in soft
        ]
        longest = max(part.longest for part in soft)
        return cls(layers, longest, max(part.ramp for part in soft), row)


@torch.inference_mode()
def _read(
    loaded: Loaded, dynamic: Sequence[DynamicSpan]
) -> tuple[dict[DynamicSpan, Tensor], TokenSpans]:
    """([H] the mean of each part over the real tokens of held-out rows, the first of them)."""
    batch, about = batch_held_out(loaded)
    seen: dict[DynamicSpan, Tensor] = {}  # [B, H, T]
    hooks = [
        part.register_forward_hook(lambda part, _, spans: seen.update({part: spans}))
        for part in dynamic
    ]
    try:
        loaded.model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    real = batch.text.real
    number = int(real.any(1).int().argmax())
    first = torch.cat([spans[number] for spans in seen.values()]).mean(0)[real[number]]
    tokens = loaded.tokenizer.show(batch.text.ids[number][real[number]].tolist())
    means = {part: spans.transpose(1, 2)[real].mean(0) for part, spans in seen.items()}
    return means, TokenSpans(tokens, first.tolist(), about)
