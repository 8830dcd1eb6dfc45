"""Patterns that differ from layer to layer."""

from __future__ import annotations

from collections.abc import Sequence
from operator import or_

from plmctl.attention.patterns.base import ComposedPattern, Pattern
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Whole


@part_of("pattern")
class ByLayer(ComposedPattern):
    """`parts[layer](b, h, q, k)`: windows and gaps that grow with depth (Beltagy et al., 2020,
    arXiv:2004.05150, sec. 4.1 and table 12).

    Together the layers see what any of them sees. Where layers differ in the window alone, `Window`
    takes a list.
    """

    operator = or_

    def __init__(self, *, parts: Sequence[Pattern]) -> None:
        if len(parts) < 2 or any(part.layers > 1 for part in parts):
            allowed = "a pattern for each layer, two or more, none of which tells layers apart"
            raise ConfigError("pattern.parts", [type(part).__name__ for part in parts], allowed)
        super().__init__(parts=parts)
        self.layers = len(parts)

    def at_layer(self, layer: int) -> Pattern:
        return self.parts[layer]


@part_of("pattern")
def alternating(*, parts: Sequence[Pattern], num_layers: Count) -> Pattern:
    """Layers that have the parts in turn: layer l = 0, 1, ... has `parts[l mod n]` of n parts.

    GPT-3 has dense and locally banded layers (Brown et al., 2020, arXiv:2005.14165, sec. 2.1).
    """
    if not 2 <= len(parts) <= num_layers:
        allowed = f"2 to {num_layers} patterns: the stack has size.num_layers={num_layers}"
        found = [type(part).__name__ for part in parts]
        raise ConfigError("pattern.parts", found, allowed, fix="pattern=causal")
    return ByLayer(parts=[parts[layer % len(parts)] for layer in range(num_layers)])


@part_of("pattern")
def take_layers(*, part: Pattern, layers: Sequence[Whole]) -> Pattern:
    """The pattern of a model that has some of the layers of another one, `layers` of `part`,
    counted from 0.
    """
    wrong = [layer for layer in layers if layer >= part.layers]
    if wrong or not layers:
        allowed = f"one or more of 0 to {part.layers - 1}, the layers of the pattern"
        raise ConfigError("pattern.layers", list(layers), allowed, fix="pattern.layers=[0]")
    parts = [part.at_layer(layer) for layer in layers]
    return parts[0] if len(parts) == 1 else ByLayer(parts=parts)
