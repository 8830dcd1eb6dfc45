"""Ctrl-C and SIGTERM: the first asks the trainer to save and end, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """While entered, hears signals. `number` is the one that all processes agree to end for, None as long as there is none.

    Outside the main thread, where Python delivers no signals, it hears nothing.
    """

    def __init__(self, *, loud: bool = False) -> None:
        self.loud = loud  # answer the first signal
        self.number: int | None = None
        self._heard: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._hear) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._heard is not None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._heard = number
        if self.loud:  # past Python's buffers, which a signal may have found half-way
            os.write(2, b"\nsaving after this update, then ending; once more ends at once\n")

    def counts(self) -> dict[str, int]:
        """Flags to sum over processes, so that all of them end after the same update."""
        return {f"stop/{int(number)}": int(self._heard == number) for number in SIGNALS}

    def agree(self, counts: Mapping[str, int]) -> None:
        """Read the summed flags."""
        for number in SIGNALS:
            if counts[f"stop/{int(number)}"]:
                self.number = int(number)


def exit_code(number: int | None) -> int:
    """130 for Ctrl-C, 143 for SIGTERM, 0 for an end of its own."""
    return 0 if number is None else 128 + int(number)
