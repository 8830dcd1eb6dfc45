"""Two hops instead of one: the Sparse Transformer's factorised attention."""

from __future__ import annotations

from typing import Literal

from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.by_head import ByHead
from plmctl.attention.patterns.by_layer import alternating
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.own_block import OwnBlock
from plmctl.attention.patterns.strided import Strided
from plmctl.attention.patterns.summaries import Summaries
from plmctl.attention.patterns.window import Window
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count


@part_of("pattern")
def sparse_transformer(
    *,
    variant: Literal["strided", "fixed"],
    stride: Count,
    columns: Count | None = None,
    factors: Literal["layers", "heads", "merged"],
    num_heads: Count,
    num_layers: Count,
) -> Pattern:
    """Causal attention in two parts, through which all earlier tokens are heard of in two hops; in
    rows of about stride^2 tokens a query sees about 2 sqrt(T) keys (Child et al., 2019,
    arXiv:1904.10509, sec. 4.2 and 4.3).

    Args:
        variant: "strided": `q - k <= stride`, and `(q - k) mod stride = 0`. "fixed": the own block
            of `stride` tokens, and the last `columns` tokens of every block; a token before the
            first of those sees nothing by the second part.
        stride: Published: 128 or 256 in text.
        columns: Published: 8, 16 or 32; null where strided.
        factors: The layers or heads that have the parts: "layers" in turn, half of the "heads"
            each, or "merged" in every head.
        num_heads: Heads of the model.
        num_layers: Layers of the stack.
    """
    if variant == "strided" and columns is not None:
        allowed = "null where pattern.variant=strided, which has no summaries"
        raise ConfigError("pattern.columns", columns, allowed, fix="pattern.columns=null")
    if variant == "fixed" and columns is None:
        allowed = f"1 to {stride}: tokens of a block that sum it up"
        fix = f"pattern.columns={max(1, stride // 4)}"
        raise ConfigError("pattern.columns", None, allowed, fix=fix)
    if factors == "heads" and num_heads % 2:
        allowed = f"layers or merged: size.num_heads={num_heads} has no halves"
        raise ConfigError("pattern.factors", factors, allowed, fix="pattern.factors=layers")
    near: Pattern = Window(reach=stride)
    far: Pattern = Strided(stride=stride)
    if columns is not None:
        near, far = OwnBlock(stride=stride), Summaries(stride=stride, columns=columns)
    if factors == "merged":
        return Causal() & (near | far)
    if factors == "heads":
        return Causal() & ByHead(parts=[near, far], num_heads=num_heads)
    if num_layers == 1:
        allowed = "heads or merged: the stack has one layer"
        raise ConfigError("pattern.factors", factors, allowed, fix="pattern.factors=merged")
    return Causal() & alternating(parts=[near, far], num_layers=num_layers)
