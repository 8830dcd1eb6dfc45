"""Rows in a file without a name, which hold no memory and are gone when the process ends."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from plmctl.core.named_values import to_dict


class Spool:
    """Values that JSON can spell, added one by one and read as often as needed, in their order.

    Example:
        with Spool(Path("out")) as rows:
            rows.append({"text": "a"})
            list(rows)  # [{"text": "a"}]
    """

    def __init__(self, folder: Path | None) -> None:
        """Args:
        folder: on the disk of which they lie; None: where temporary files are.
        """
        self.stream: IO[str] = tempfile.TemporaryFile(  # noqa: SIM115 (closed by `__exit__`)
            "w+", dir=folder, encoding="utf-8"
        )
        self.length = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *error: object) -> None:
        self.stream.close()

    def append(self, value: Any) -> None:
        """A value behind the others; mappings become `dict`, tuples become lists."""
        json.dump(value, self.stream, default=to_dict)
        self.stream.write("\n")
        self.length += 1

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        self.stream.flush()
        self.stream.seek(0)
        for line in self.stream:
            yield json.loads(line)
