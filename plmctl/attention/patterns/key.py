"""Keys for equal patterns: kernels and operators compute what they need once for each."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from plmctl.attention.patterns.base import Pattern


def make_key(value: object) -> Hashable:
    """A key that is equal for patterns with equal settings."""
    if isinstance(value, Pattern):
        return (type(value), *((name, make_key(part)) for name, part in vars(value).items()))
    if isinstance(value, Mapping):
        return tuple((name, make_key(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(make_key(part) for part in value)
    return value if isinstance(value, Hashable) else id(value)
