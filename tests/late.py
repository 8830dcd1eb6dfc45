"""Libraries that a test imports when it reads them: each worker collects all tests, and runs half
of them.
"""

from __future__ import annotations

from typing import Any

import pytest


class Late:
    """A library, whose absence skips the test that reads it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks for marks of its own
            raise AttributeError(name)
        return getattr(pytest.importorskip(self._name), name)
