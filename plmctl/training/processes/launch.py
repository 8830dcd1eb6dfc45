"""Several processes of one command on this machine, as torchrun would start them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

import torch

from plmctl.core.children import child_environment
from plmctl.training.stop import ASKED, listen

GRACE = 30.0  # seconds that the other processes get to end once one has failed
LAUNCHED = "PLMCTL_LAUNCHED"  # in the environment of a process that `launch` has started


def launch(
    processes: int,
    argv: Sequence[str],
    *,
    module: str = "plmctl",
    given: Mapping[str, int] | None = None,
) -> int:
    """Run `python -m module argv` in `processes` processes on this machine, as torchrun would.

    The first signal is passed on, so that Ctrl-C saves; the second ends all processes at once, even
    one that does not react. The first failure ends the others, and they end with this process.

    Args:
        given: open files that they share, by the name of the environment variable with their
            number.

    Returns:
        The exit code.
    """
    given = given or {}
    shared = _make_environment(processes) | {name: str(number) for name, number in given.items()}
    children = [
        subprocess.Popen(  # its own session: a Ctrl-C at the terminal reaches it once, through us
            [sys.executable, "-m", module, *argv],
            env={**shared, "RANK": str(i), "LOCAL_RANK": str(i)},
            start_new_session=True,
            pass_fds=tuple(given.values()),
        )
        for i in range(processes)
    ]

    heard: list[int] = []

    def forward(number: int, frame: object) -> None:
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
    return 128 + heard[-1] if len(heard) > 1 else code


def is_launched() -> bool:
    """Whether `launch` has started this process; then the launcher passes signals on and reports
    them.
    """
    return LAUNCHED in os.environ


def _make_environment(processes: int) -> dict[str, str]:
    """The environment of all processes: their number, their meeting point, and their threads."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        **os.environ,
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # the caller has set the share of one process
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(torch.get_num_threads()),
        LAUNCHED: "1",
        **child_environment(),
    }


def _wait(children: Sequence[subprocess.Popen]) -> int:
    """Wait for all; the first non-zero exit code, or 0."""
    failed: tuple[int, float] | None = None
    while any(child.poll() is None for child in children):
        code = next((child.returncode for child in children if child.poll()), 0)
        if code and failed is None:
            failed = (code, time.monotonic())
        if failed and time.monotonic() - failed[1] > GRACE:
            break
        time.sleep(0.05)
    code = (
        failed[0]
        if failed
        else next((child.returncode for child in children if child.returncode), 0)
    )
    return code if code >= 0 else 128 - code
