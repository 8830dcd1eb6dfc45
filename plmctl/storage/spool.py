"""Rows on the disk, which hold no memory."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from plmctl.core.named_values import to_dict
from plmctl.storage.gate import open_file
from plmctl.storage.journal import Journal

_spell = json.JSONEncoder(default=to_dict).encode


class Spool:
    """Values that JSON can spell, added one by one and read as often as needed, in their order.

    They lie in a file without a name, which is gone when the process ends.

    Example:
        with Spool(Path("out")) as rows:
            rows.append({"text": "a"})
            list(rows)  # [{"text": "a"}]
    """

    def __init__(self, folder: Path | None) -> None:
        """Args:
        folder: on the disk of which they lie; None: where temporary files are.
        """
        self.stream: IO[bytes] = self._open(folder)
        self.length = 0
        self.state: dict[str, Any] = {}

    def _open(self, folder: Path | None) -> IO[bytes]:
        return tempfile.TemporaryFile(dir=folder)

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *error: object) -> None:
        self.stream.close()

    def append(self, value: Any) -> None:
        """A value behind the others; mappings become `dict`, tuples become lists."""
        self.stream.write(_spell(value).encode() + b"\n")
        self.length += 1

    def commit(self, **state: Any) -> None:
        """Note what is known of the values so far, which a stopped job finds again in `state`."""
        self.state = state

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        self.stream.flush()
        self.stream.seek(0)
        for line in self.stream:
            yield json.loads(line)


class KeptSpool(Spool):
    """Values that outlive a kill: a new process has those of the last `commit`.

    Args:
        journal: The journal of the job, in whose folder they lie.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        super().__init__(journal.folder)
        self.length, size = journal.state.get("rows", (0, 0))
        self.state = journal.state.get("state", {})
        self.stream.truncate(size)
        self.stream.seek(size)

    def _open(self, folder: Path | None) -> IO[bytes]:
        file = self.journal.folder / "rows.jsonl"
        return open_file(file, "r+b" if file.exists() else "w+b")

    def commit(self, **state: Any) -> None:
        """Note what is known of the values so far, and keep all of it on the disk."""
        super().commit(**state)
        self.stream.flush()
        self.journal.commit(rows=(self.length, self.stream.tell()), state=state)
