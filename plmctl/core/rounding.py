"""How exact the numbers of results are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DIGITS = 6  # significant ones of a metric


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """`value`, plain data, with so many significant digits of every float in it."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {key: rounded(part, digits) for key, part in value.items()}
    return [rounded(part, digits) for part in value] if isinstance(value, list | tuple) else value
