"""Ctrl-C and SIGTERM: the first asks the trainer to save and end, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """While entered, remembers the first signal in `number`; outside the main thread it only carries what is set by hand."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heard) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before = {}

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.number = number

    def counts(self) -> dict[str, int]:
        """Flags to sum over processes, so that all of them end after the same update."""
        return {f"stop/{int(number)}": int(self.number == number) for number in SIGNALS}

    def agree(self, counts: dict[str, int]) -> None:
        for number in SIGNALS:
            if counts[f"stop/{int(number)}"]:
                self.number = int(number)


def exit_code(number: int | None) -> int:
    """130 for Ctrl-C, 143 for SIGTERM, 0 for an end of its own."""
    return 0 if number is None else 128 + int(number)
