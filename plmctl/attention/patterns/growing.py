"""Windows that grow from layer to layer, with gaps on a few heads of the upper ones."""

from __future__ import annotations

import math

from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.windows import windows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Whole


@part_of("pattern")
def growing(
    *,
    first: Count,
    last: Count,
    divide: Count = 1,
    gaps: Whole,
    heads: Whole,
    causal: bool,
    num_heads: Count,
    num_layers: Count,
) -> Pattern:
    """Windows of `first` keys in the lowest layer, twice, four times ... as many further up, and
    `last` in the highest; in the upper half of the layers, the last `heads` see only every second,
    every third ... token (Beltagy et al., 2020, arXiv:2004.05150, sec. 4.1 and table 12).

    Layer l = 0, 1, ... of L layers has a reach of `first 2^round(log2(last / first) l / (L - 1))`.
    The upper half is cut into `gaps` parts, and part g = 1, 2, ... leaves out g tokens between two
    keys. Example with 12 layers, 32 to 512 keys, 3 gaps:

        reach   32 32 64 64 64 128 128 256 256 256 512 512
        gap      0  0  0  0  0   0   1   1   2   2   3   3

    Args:
        first: Keys on each side, or before the query if `causal`.
        last: The number of keys of the highest layer; fewer than `first` if windows shrink.
        divide: Divides both: half of the windows in the stage of training before this one.
        gaps: The largest gap; 0: none.
        heads: Heads of a layer with gaps.
        causal: Only the keys before the query, and its own.
        num_heads: Heads of the model.
        num_layers: Layers of the stack.

    Differs: the windows between the lowest and the highest, which the paper does not state.
    """
    for name, window in (("first", first), ("last", last)):
        if window % divide:
            fix = f"pattern.{name}={-(-window // divide) * divide}"
            raise ConfigError(
                f"pattern.{name}", window, f"a multiple of {divide}, which divides it", fix=fix
            )
    doublings = math.log2(last / first)
    if doublings != round(doublings):
        nearest = 2 ** round(doublings) * first
        allowed = f"{first} (pattern.first) times, or divided by, a power of two"
        raise ConfigError("pattern.last", last, allowed, fix=f"pattern.last={max(1, nearest):.0f}")
    if heads > num_heads:
        raise ConfigError("pattern.heads", heads, f"at most {num_heads}, the heads of a layer")
    spans = max(1, num_layers - 1)
    steps = [math.floor(doublings * layer / spans + 0.5) for layer in range(num_layers)]
    lower = num_layers - num_layers // 2
    parts = [gaps * (layer - lower) // max(1, num_layers // 2) for layer in range(num_layers)]
    apart = [1 if layer < lower or not gaps else 2 + parts[layer] for layer in range(num_layers)]
    reach: list[Whole | list[Whole]] = [round(first // divide * 2.0**step) for step in steps]
    plain = num_heads - heads
    dilation: list[Count | list[Count]] = [[1] * plain + [step] * heads for step in apart]
    return windows(reach=reach, dilation=dilation, num_heads=num_heads, causal=causal)
