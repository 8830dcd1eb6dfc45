"""Files of JSON lines that several processes append to: a line is whole, or it is passed over."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plmctl.storage.durable import sync
from plmctl.storage.gate import admit, open_file
from plmctl.storage.reading import parse_json


def append_line(file: Path, record: Mapping[str, Any], *, durable: bool = False) -> None:
    """Append a record as one line.

    Writers wait for each other. A line that a killed process has left unfinished gets its end
    first.

    Args:
        file: The file; it is made if it is missing, and so is its folder.
        record: values that JSON can write.
        durable: whether the line is on the disk itself when this returns.
    """
    admit(file.parent).mkdir(parents=True, exist_ok=True)
    with open_file(file, "a+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - 1))
        torn = stream.read(1) not in (b"", b"\n")
        stream.write(b"\n" * torn + json.dumps(record).encode() + b"\n")
        stream.flush()
        if durable:
            os.fsync(stream.fileno())
            if not size:
                sync(file.parent)


def read_lines(file: Path, start: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The records behind byte `start` of a file, and the byte to go on from the next time.

    A line that is no record is passed over; one without its end is left for the next time.
    """
    if not file.is_file():
        return [], start
    with file.open("rb") as stream:
        stream.seek(start)
        text = stream.read()
    text = text[: text.rfind(b"\n") + 1]
    records = []
    for line in text.split(b"\n"):
        with contextlib.suppress(ValueError):
            record = parse_json(line.decode())
            records += [record] if isinstance(record, dict) else []
    return records, start + len(text)
