"""Rounded numbers of results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plmctl.core.named_values import NamedValues

DIGITS = 6  # significant ones of a metric


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


def spell_size(size: float) -> str:
    """A number of bytes as people read it: 4.0 MB, 12.3 kB, 80 bytes."""
    if size < 1e3:
        return f"{size:,.0f} bytes"
    return f"{size / 1e3:,.1f} kB" if size < 1e5 else f"{size / 1e6:,.1f} MB"
