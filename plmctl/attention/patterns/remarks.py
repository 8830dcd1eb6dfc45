"""Remarks about patterns that forbid nothing, for the user."""

from __future__ import annotations

from plmctl.attention.patterns.base import Full, Pattern


def remark_on(pattern: Pattern, length: int) -> str:
    """A line for the user about a pattern in rows of up to `length` tokens, or ""."""
    layers = [pattern.at_layer(number).find_equal(length) for number in range(pattern.layers)]
    idle = [str(number) for number, name in enumerate(layers, start=1) if name]
    if isinstance(pattern, Full) or not idle:
        return ""
    equal = "/".join(sorted({name for name in layers if name}))
    what = "nothing" if equal == "full" else f"no more than pattern={equal}"
    where = f"forbids {what} in rows of {length} tokens, the longest here"
    if len(idle) == len(layers):
        return f"{where}: the same as pattern=full" if equal == "full" else where
    return f"{where}, in layer{'s' * (len(idle) > 1)} {', '.join(idle)}"
