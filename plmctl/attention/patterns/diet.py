"""Few keys, and more distant ones from layer to layer."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Literal

from plmctl.attention.patterns.base import LONGEST, Pattern
from plmctl.attention.patterns.by_layer import ByLayer
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.dilated import Dilated
from plmctl.attention.patterns.window import Window
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count


@part_of("pattern")
def diet(
    *,
    variant: Literal["dilated", "dilated_memory", "cascade"],
    first: Count,
    base: Count,
    num_layers: Count,
) -> Pattern:
    """Causal attention to few keys, in layer l = 0, 1, ...: "dilated", the query and `first - 1`
    keys before it at distances of base^l; "dilated_memory", also the keys of all layers below;
    "cascade", `first base^l` keys without gaps (Wang et al., 2020, arXiv:2002.06170;
    cgraywang/transformer-on-diet, whose masks say what memory is).

    Args:
        variant: One of the three.
        first: Keys in the first layer; published: 3 dilated (kernel_size), 4 in the cascade
            (first_window_size).
        base: Published: 2 (d_base, window_size_multiplier).
        num_layers: Layers of the stack.
    """
    farthest = first * base ** (num_layers - 1)
    if farthest > LONGEST:
        allowed = f"a number whose power {num_layers - 1}, times {first} keys, is below {LONGEST:,}"
        raise ConfigError("pattern.base", base, allowed, fix="pattern.base=1")
    steps = [base**layer for layer in range(num_layers)]
    parts: list[Pattern]
    if variant == "cascade":
        parts = [Window(reach=first * step - 1) for step in steps]
    else:
        parts = [Dilated(reach=first - 1, dilation=[step]) for step in steps]
    if variant == "dilated_memory":
        parts = [reduce(or_, parts[: layer + 1]) for layer in range(num_layers)]
    return Causal() & (parts[0] if num_layers == 1 else ByLayer(parts=parts))
