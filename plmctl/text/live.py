"""Standard input as it comes: its lines, and whether the next one can be read without waiting."""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any

_CHUNK = 1 << 16  # bytes of a pipe of Linux


class LiveInput(io.RawIOBase):
    """The bytes of standard input.

    Example:
        live = LiveInput()
        line = live.readline()  # waits
        if live.ready():
            line = live.readline()  # does not wait
    """

    def __init__(self) -> None:
        self._held, self._start, self._ended = b"", 0, False
        self._stream: Any = sys.stdin.buffer
        try:
            self._number: int | None = sys.stdin.fileno()
        except io.UnsupportedOperation:  # a program has put a stream of its own there
            self._number = None

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1) -> bytes:
        limit = sys.maxsize if size is None or size < 0 else size
        while not self._has_line(limit) and not self._ended:
            self._read_more()
        end = self._held.find(b"\n", self._start) + 1 or len(self._held)
        begin, self._start = self._start, min(end, self._start + limit)
        return self._held[begin : self._start]

    def ready(self) -> bool:
        """Whether a line, or the end, can be read without waiting."""
        while not (self._has_line(sys.maxsize) or self._ended):
            if self._number is not None and not select.select([self._number], [], [], 0)[0]:
                return False
            self._read_more()
        return True

    def _has_line(self, limit: int) -> bool:
        held = len(self._held) - self._start
        return held >= limit or self._held.find(b"\n", self._start) >= 0

    def _read_more(self) -> None:
        if self._number is None:
            more = self._stream.read1(_CHUNK)
        else:
            more = os.read(self._number, _CHUNK)
        self._ended = not more
        self._held, self._start = self._held[self._start :] + more, 0
