"""Ctrl-C, SIGTERM, a closed terminal, and the warnings of a cluster: the first asks the trainer to
save and end. The second ends the process at once, if a person can have sent it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType

# a cluster sends these before it takes a machine away
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *WARNINGS)
# the exit code of a command that a signal ended: 130, 143, 129, 138, 140
STOPPED = tuple(128 + number for number in SIGNALS)
ASKED = b"\nsaving after this update, then ending; once more ends at once\n"

# in the environment of a job of a cluster, which sends several signals while a job saves
OF_CLUSTERS = ("SLURM_JOB_ID", "SUBMITIT_EXECUTOR")

AT_ONCE = b"ended at once; --resume goes on from the last checkpoint\n"


def ends_at_once(number: int) -> bool:
    """Whether the second signal ends a process that is saving: not a warning, and on a cluster only
    Ctrl-C.
    """
    on_cluster = any(name in os.environ for name in OF_CLUSTERS)
    return number == signal.SIGINT or not (on_cluster or number in WARNINGS)


@contextlib.contextmanager
def listen(hear: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call `hear` for each of `SIGNALS`, except for a hang-up that nohup ignores.

    Only in the main thread, since Python delivers no signals to others.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        heard = [
            number
            for number in SIGNALS
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
        ]
        before = {number: signal.signal(number, hear) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stop:
    """Listens to signals while it is entered. `number` is the signal for which all processes have
    agreed to end, or None.
    """

    def __init__(self, *, loud: bool = False) -> None:
        self.loud = loud  # print an answer to the first signal
        self.number: int | None = None
        self._heard: int | None = None
        self._hearing = contextlib.ExitStack()

    def __enter__(self) -> Stop:
        self._hearing.enter_context(listen(self._hear))
        return self

    def __exit__(self, *_: object) -> None:
        self._hearing.close()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._heard is not None:
            if not ends_at_once(number):
                return
            if self.loud:
                os.write(2, AT_ONCE)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._heard = number
        if self.loud:  # not through Python's buffers, which the signal may have interrupted
            os.write(2, ASKED)

    def counts(self) -> dict[str, int]:
        """Flags to sum over processes, so that all of them end after the same update."""
        return {f"stop/{int(number)}": int(self._heard == number) for number in SIGNALS}

    def agree(self, counts: Mapping[str, int]) -> None:
        """Set `number` by the summed flags."""
        for number in SIGNALS:
            if counts[f"stop/{int(number)}"]:
                self.number = int(number)


def exit_code(number: int | None) -> int:
    """128 and the number of the signal: 130 for Ctrl-C, 143 for SIGTERM; 0 for an end of its
    own.
    """
    return 0 if number is None else 128 + int(number)
