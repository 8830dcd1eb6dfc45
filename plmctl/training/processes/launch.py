"""Several processes of one command on this machine, as torchrun would start them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from plmctl.core.children import TAKE_UP, child_environment, describe_end
from plmctl.core.errors import DataError, UsageError
from plmctl.core.terminal import FAIL, WARN, remark
from plmctl.training.stop import ASKED, STOPPED, ends_at_once, listen

GRACE = 30.0  # seconds that the other processes get to end once one has failed
# the exit codes after which a start anew would end in the same way
FINAL = (0, UsageError.exit_code, DataError.exit_code, *STOPPED)
LAUNCHED = "PLMCTL_LAUNCHED"  # in the environment of a process that `launch` has started


class Rendezvous(NamedTuple):
    """One of several machines of a run, and where all processes meet."""

    node: int
    nodes: int
    address: str
    port: int


def launch(
    processes: int,
    argv: Sequence[str],
    *,
    module: str = "plmctl",
    given: Mapping[str, int] | None = None,
    restarts: int = 0,
    meeting: Rendezvous | None = None,
) -> int:
    """Run `python -m module argv` in `processes` processes on this machine, as torchrun would.

    The first signal is passed on, so that Ctrl-C saves; the second ends all processes at once, even
    one that does not react. The first failure ends the others, and they end with this process.

    Args:
        given: open files that they share, by the name of the environment variable with their
            number.
        restarts: The number of starts anew of all of them after a failure that is no mistake of
            the user.
        meeting: This machine among several, or as a job of a cluster, where a run in its folder is
            gone on with.

    Returns:
        The exit code.
    """
    for start in range(1, restarts + 1):
        code, heard = _run(processes, argv, module, given or {}, meeting)
        if heard or code in FINAL:
            return code
        remark(f"plmctl: start {start} of {restarts} anew, from the newest checkpoint", WARN)
        # the next port: a process of before may still hold this one
        meeting = meeting and meeting._replace(port=meeting.port + 1)
    return _run(processes, argv, module, given or {}, meeting)[0]


def _run(
    processes: int,
    argv: Sequence[str],
    module: str,
    given: Mapping[str, int],
    meeting: Rendezvous | None,
) -> tuple[int, bool]:
    """One start of all processes: the exit code, and whether a signal has ended it."""
    first = meeting.node * processes if meeting else 0
    shared = _make_environment(processes, meeting) | {
        name: str(number) for name, number in given.items()
    }
    children = [
        subprocess.Popen(  # its own session: a Ctrl-C at the terminal reaches it once, through us
            [sys.executable, "-m", module, *argv],
            env={**shared, "RANK": str(first + i), "LOCAL_RANK": str(i)},
            start_new_session=True,
            pass_fds=tuple(given.values()),
        )
        for i in range(processes)
    ]

    heard: list[int] = []

    def forward(number: int, frame: object) -> None:
        if heard and not ends_at_once(number):
            return
        heard.append(number)
        for child in children:
            if child.poll() is None:
                child.send_signal(number if len(heard) == 1 else signal.SIGKILL)
        if len(heard) == 1:
            os.write(2, ASKED)

    with listen(forward):
        try:
            code = _wait(children)
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
    return (128 + heard[-1] if len(heard) > 1 else code), bool(heard)


def is_launched() -> bool:
    """Whether `launch` has started this process; then the launcher passes signals on and reports
    them.
    """
    return LAUNCHED in os.environ


def _make_environment(processes: int, meeting: Rendezvous | None) -> dict[str, str]:
    """The environment of all processes: their number, their meeting point, and their threads."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = "127.0.0.1"
    if meeting and meeting.nodes > 1:
        address, port = meeting.address, meeting.port
    return {
        **os.environ,
        "WORLD_SIZE": str(processes * (meeting.nodes if meeting else 1)),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        **({TAKE_UP: "1"} if meeting else {}),
        # the caller has set the share of one process
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or _count_own_threads(),
        LAUNCHED: "1",
        **child_environment(),
    }


def _count_own_threads() -> str:
    """The threads of torch in this process, which imports torch here at the earliest."""
    import torch

    return str(torch.get_num_threads())


def _name_lost(rank: int, code: int, others: str) -> None:
    """Say which process has ended without a word of its own."""
    if code not in (1, *FINAL):
        remark(f"plmctl: process {rank} {describe_end(code)}{others}", FAIL)


def _wait(children: Sequence[subprocess.Popen]) -> int:
    """Wait for all; the first non-zero exit code, or 0."""
    failed: tuple[int, float] | None = None
    named: set[int] = set()
    while True:
        code = next((child.returncode for child in children if child.poll()), 0)
        if code and failed is None:
            failed = (code, time.monotonic())
        for rank, child in enumerate(children):
            if child.poll() and rank not in named:
                named.add(rank)
                _name_lost(rank, child.returncode, "; the others end" * (len(children) > 1))
        ended = all(child.poll() is not None for child in children)
        if ended or (failed and time.monotonic() - failed[1] > GRACE):
            break
        time.sleep(0.05)
    code = (
        failed[0]
        if failed
        else next((child.returncode for child in children if child.returncode), 0)
    )
    return code if code >= 0 else 128 - code
