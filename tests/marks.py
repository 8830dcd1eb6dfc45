"""Marks for some cases of a test."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mark_slow(cases: Iterable[Any], slow: Collection[Any]) -> list[Any]:
    """The cases of a parametrized test, with those in `slow` left to `make test-all`."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        if case in slow
        else case
        for case in cases
    ]
