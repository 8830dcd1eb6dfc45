"""Windows and gaps that differ from layer to layer and from head to head."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.by_head import ByHead
from plmctl.attention.patterns.by_layer import ByLayer
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.dilated import Dilated
from plmctl.attention.patterns.window import Window
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Whole


@part_of("pattern")
def windows(
    *,
    reach: Whole | list[Whole | list[Whole]],
    dilation: Count | list[Count | list[Count]] = 1,
    num_heads: Count,
    causal: bool = False,
) -> Pattern:
    """A sliding window with gaps for each layer and head: `|q - k| <= reach d` and `(q - k) mod d =
    0`, d = `dilation` (Beltagy et al., 2020, arXiv:2004.05150, sec. 3.1 and 4.1).

    Args:
        reach: The number of keys on each side. A list has one entry for each layer, the first layer
            first, or a single one for all. An entry that is a list has one number for each head.
        dilation: The distance between neighbouring keys, 1: no gaps (in the paper's tables 0); a
            list as that of `reach`.
        num_heads: Heads of the model.
        causal: Only the keys before the query, and its own.
    """
    if isinstance(reach, list) and isinstance(dilation, list) and len(reach) != len(dilation):
        allowed = f"as many entries as pattern.reach, {len(reach)}: one for each layer"
        raise ConfigError("pattern.dilation", dilation, allowed, fix="pattern.dilation=1")
    layers = max(len(entry) if isinstance(entry, list) else 1 for entry in (reach, dilation))
    parts = [
        _join_heads(reaches, gaps)
        for reaches, gaps in zip(
            _spread("reach", reach, layers, num_heads),
            _spread("dilation", dilation, layers, num_heads),
            strict=True,
        )
    ]
    pattern = parts[0] if layers == 1 else ByLayer(parts=parts)
    return Causal() & pattern if causal else pattern


def _spread(
    name: str, setting: int | Sequence[int | Sequence[int]], layers: int, num_heads: int
) -> list[list[int]]:
    """The numbers of every head in every layer."""
    by_layer: Sequence[int | Sequence[int]]
    by_layer = [setting] * layers if isinstance(setting, int) else setting
    if not by_layer:
        allowed = "a number, or one entry for each layer; a single entry is for all of them"
        raise ConfigError(f"pattern.{name}", setting, allowed, fix=f"pattern.{name}=1")
    heads = [[entry] * num_heads if isinstance(entry, int) else list(entry) for entry in by_layer]
    for number, entry in enumerate(heads, start=1):
        if len(entry) != num_heads:
            allowed = f"a number, or {num_heads} numbers, one for each head, in layer {number}"
            fix = f"pattern.{name}.{number - 1}={max(entry, default=1)}"
            raise ConfigError(f"pattern.{name}", setting, allowed, fix=fix)
    return heads


def _join_heads(reaches: Sequence[int], gaps: Sequence[int]) -> Pattern:
    """The pattern of a layer whose heads have these numbers."""
    heads = [
        Window(reach=reach) if gap == 1 else Dilated(reach=reach, dilation=[gap])
        for reach, gap in zip(reaches, gaps, strict=True)
    ]
    same = len(set(zip(reaches, gaps, strict=True))) == 1
    return heads[0] if same else ByHead(parts=heads, num_heads=len(heads))
