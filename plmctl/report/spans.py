"""The spans that the heads of a model have learned (Sukhbaatar et al., 2019)."""

from __future__ import annotations

from plmctl.nn.spans import AdaptiveSpan
from plmctl.nn.stack import Stack
from plmctl.run.loading import Loaded


def measure_spans(loaded: Loaded) -> tuple[list[list[float]], int, float]:
    """(spans by layer and head in tokens, the longest possible one, the ramp behind them)."""
    stacks = [part for part in loaded.model.backbone.modules() if isinstance(part, Stack)]
    soft = [
        part
        for stack in stacks
        for step in stack.steps
        for part in stack.block(step).modules()
        if isinstance(part, AdaptiveSpan)
    ]
    layers = [part.spans.detach().tolist() for part in soft]
    return layers, max(part.longest for part in soft), max(part.ramp for part in soft)
