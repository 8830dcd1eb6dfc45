"""A job of a cluster, inside the process that the cluster starts. Nothing of its progress is in
what was submitted: it looks into its folder, whatever has ended it before.

    a warning (SIGUSR2, SIGUSR1, SIGTERM)  all processes save after the same update; the job
                                           waits for its turn again
    a lost machine                         the cluster starts what was submitted
    a lost process, os._exit               the others end, and all start anew in the same job
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plmctl.core.machine import count_processors
from plmctl.jobs.work import Outcome
from plmctl.training.processes.launch import Rendezvous, launch
from plmctl.training.processes.threads import THREADS
from plmctl.training.stop import WARNINGS

WARNED = tuple(128 + number for number in (*WARNINGS, signal.SIGTERM))  # exit codes of a warning
SACCT = 30  # seconds that the cluster may take to say how a job stands


@dataclass(frozen=True)
class ClusterJob:
    """The function that submitit stores, and calls in each of its tasks.

    Args:
        call: The work, which goes on where an earlier start has left it.
        here: The folder in which relative paths begin.
        ends: A code other than 0 is the exit code of the task.
    """

    call: Callable[[], Outcome]
    here: str
    ends: bool = False

    def __call__(self) -> Outcome:
        from submitit import JobEnvironment

        # submitit's own handler counts the turns, and asks the cluster for another one
        again: Any = signal.getsignal(JobEnvironment._usr_sig())
        with contextlib.chdir(self.here):
            outcome = self.call()
        if outcome.code in WARNED and callable(again):
            if not (outcome.code == 128 + signal.SIGTERM and _is_cancelled()):
                again(outcome.code - 128, None)  # does not return on the first machine
            return outcome
        if outcome.code and self.ends:
            raise SystemExit(outcome.code)
        return outcome

    def checkpoint(self) -> Any:
        """The function for the next start, which is the same."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


@dataclass(frozen=True)
class NodeRun:
    """The processes of one run on one of its machines.

    Args:
        argv: The command line behind `plmctl`.
        restarts: The number of starts anew after a lost process.
        module: The module that reads the line.
    """

    argv: tuple[str, ...]
    count: int
    restarts: int
    module: str = "plmctl"

    def __call__(self) -> Outcome:
        from submitit.helpers import TorchDistributedEnvironment

        job = TorchDistributedEnvironment()  # a task for each machine
        meeting = Rendezvous(job.rank, job.world_size, job.master_addr, job.master_port)
        if self.count > 1:
            os.environ.setdefault(THREADS, str(max(1, count_processors() // self.count)))
        code = launch(
            self.count, self.argv, module=self.module, restarts=self.restarts, meeting=meeting
        )
        return Outcome(code)


def _is_cancelled() -> bool:
    """Whether a person has cancelled the job, which SIGTERM alone does not say."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job or shutil.which("sacct") is None:
        return False
    try:
        command = ["sacct", "--noheader", "-X", "-o", "State", "-j", job]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=SACCT)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "CANCELLED" in asked.stdout
