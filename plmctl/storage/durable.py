"""Files that survive a power cut, because they are on the disk itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def settle(stream: IO[Any]) -> None:
    """Wait until all that was written to a stream is on the disk."""
    stream.flush()
    os.fsync(stream.fileno())
