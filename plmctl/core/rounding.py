"""Rounded numbers of results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from plmctl.core.named_values import NamedValues

DIGITS = 6  # significant ones of a metric
LEAST_P = 0.0001  # a p-value below it is not spelt out


def round_floats(value: Any, digits: int = DIGITS) -> Any:
    """`value`, plain data, with every float in it rounded to so many significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, NamedValues):
        return value.change(lambda number: round_floats(number, digits))
    if isinstance(value, Mapping):
        return {key: round_floats(part, digits) for key, part in value.items()}
    return (
        [round_floats(part, digits) for part in value] if isinstance(value, list | tuple) else value
    )


def spell_p(p: float, *, at_most: bool = False) -> str:
    """`0.0123`, or `< 0.0001`.

    Args:
        p: A p-value.
        at_most: Whether no more is known than that it is p at most: `<= 0.0124`.
    """
    if at_most:
        return f"<= {math.ceil(p / LEAST_P - 1e-9) * LEAST_P:.4f}"
    return f"< {LEAST_P}" if p < LEAST_P else f"{p:.4f}"


def spell_size(size: float) -> str:
    """A number of bytes as people read it: 4.0 MB, 12.3 kB, 80 bytes."""
    if size < 1e3:
        return f"{size:,.0f} bytes"
    return f"{size / 1e3:,.1f} kB" if size < 1e5 else f"{size / 1e6:,.1f} MB"
