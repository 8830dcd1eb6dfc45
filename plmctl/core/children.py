"""Child processes that end with their parent, however that ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial

# in the environment of a command that another plmctl has started: the number of that process
PARENT = "PLMCTL_PARENT"
# in the environment of a command that goes on with the run in its folder, if one has begun
TAKE_UP = "PLMCTL_TAKE_UP"
LOOK = 0.2  # seconds between two looks at the parent
PATIENCE = 10.0  # seconds that a process whose parent is gone has to save what it has

_following: set[int] = set()  # workers of a launcher that have begun to: a worker gets many jobs


def child_environment() -> dict[str, str]:
    """The environment variables with which a command ends with this process."""
    return {PARENT: str(os.getpid())}


def describe_end(code: int) -> str:
    """How a process has ended: `was ended by SIGKILL`, or `ended with exit code 3`.

    Args:
        code: The exit code, or minus the number of a signal, as in `subprocess`.
    """
    if code >= 0:
        return f"ended with exit code {code}"
    numbers = {number.value for number in signal.Signals}
    name = signal.Signals(-code).name if -code in numbers else f"signal {-code}"
    return f"was ended by {name}"


def follow_starter(*, patience: float = PATIENCE) -> None:
    """End with the plmctl process that has started this command, if there is one. The children of
    this command get its own number.
    """
    if number := os.environ.pop(PARENT, ""):
        end_after(partial(_gone, int(number)), patience=patience)


def follow_launcher(started: int) -> None:
    """End with the parent of this process, unless this is the very process `started`, in which a
    launcher runs its jobs.
    """
    if os.getpid() != started and os.getpid() not in _following:
        _following.add(os.getpid())
        end_after(partial(_gone, os.getppid()))


def follow_maker(*, patience: float = PATIENCE) -> None:
    """End with the process that made this one by `multiprocessing`."""
    import multiprocessing

    if (maker := multiprocessing.parent_process()) is not None:
        end_after(maker.join, patience=patience)


def end_after(wait: Callable[[], object], *, patience: float = PATIENCE) -> None:
    """Once `wait` returns, ask this process to save and end, as SIGTERM does; after `patience`
    seconds it ends anyway.
    """

    def follow() -> None:
        wait()
        if patience:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(patience)
        os._exit(1)

    threading.Thread(target=follow, name="plmctl-follow", daemon=True).start()


def _gone(parent: int) -> None:
    """Return when `parent` is no longer the parent of this process, because it has ended."""
    while os.getppid() == parent:
        time.sleep(LOOK)
