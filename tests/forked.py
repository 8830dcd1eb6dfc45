"""Processes that begin as copies of the one of the tests: each other one would import torch anew,
two to four seconds.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch

ROOT = Path(__file__).parents[1]
FRESH = 67280421310721  # the seed of a process that has just imported torch


class Fork:
    """As much of `subprocess.Popen` as `launch` uses, for `python -m <module> <words>`."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], **how: object) -> None:
        assert command[:2] == [sys.executable, "-m"]
        assert how.keys() <= {"start_new_session", "pass_fds"}
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            _run(command[2], command[3:], env)

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(module: str, words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Run a module as the program of this process, and end."""
    code: Any = 1
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(environment)
        sys.stdout, sys.stderr = (open(n, "w", closefd=False) for n in (1, 2))  # noqa: SIM115
        sys.argv = [module, *words]
        torch.manual_seed(FRESH)
        sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def fork_processes(patch: pytest.MonkeyPatch) -> None:
    """Let `launch` start copies of this process, where no GPU forbids it."""
    import torch._dynamo
    import torch.distributed.fsdp  # what the copies would all import

    from plmctl.training.processes import launch

    patch.setenv("PYTHONPATH", str(ROOT))
    patch.setenv("OMP_NUM_THREADS", "1")
    if not torch.cuda.is_available():
        patch.setattr(launch, "subprocess", SimpleNamespace(Popen=Fork))
