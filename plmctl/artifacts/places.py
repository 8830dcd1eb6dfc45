"""The positions that a model has: how long rows may be that it reads, and texts that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

TARGET = "target_length"  # a length of a format


class Places(NamedTuple):
    """The numbers of positions of a model, for the texts that it reads and writes; None: any
    number.
    """

    read: int | None
    written: int | None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Places:
        """Those of the model that `config` describes, whose position states its own length."""
        read = config["position"].get("max_length")
        above = (config["model"].get("decoder") or {}).get("position") or {}
        return cls(read, above.get("max_length") or read)

    @property
    def both(self) -> int | None:
        """Those of a text that is read at both ends."""
        return min((number for number in self if number is not None), default=None)

    def at(self, path: str) -> int | None:
        """Those for rows whose length stands at this path of a config."""
        return self.written if path.endswith(TARGET) else self.read
