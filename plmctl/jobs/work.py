"""One job inside the process that runs it: locked, and its end written into the journal.

JOBS/journal.jsonl   what has happened to each job
JOBS/<name>/         job.json: what the job is; log.txt: what it printed; run/: what it makes
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from plmctl.config.composer import to_plain
from plmctl.core.children import follow_launcher, follow_maker
from plmctl.core.errors import PlmctlError
from plmctl.core.lacks import describe_lack, exit_code
from plmctl.core.terminal import DETAIL, FAIL, WARN, gather, hears, remark
from plmctl.core.unwritten import explain_own_code, explain_unwritten
from plmctl.jobs.job import RUN
from plmctl.storage.gate import admit, open_file, own
from plmctl.storage.job_events import Event, JobEvents
from plmctl.storage.paths import LOG
from plmctl.storage.reading import parse_json
from plmctl.training.stop import STOPPED

RECORD, LOCK = "job.json", "lock"

# does what a record says, in the folder of its run; a whole number that it returns is its exit code
Execute = Callable[[dict[str, Any], Path], Any]


@dataclass(frozen=True)
class Outcome:
    """How a call ended: with a result, with an error that was printed, or by a signal."""

    code: int
    error: str = ""
    result: Any = None

    @property
    def stopped(self) -> bool:
        """Whether a signal ended it."""
        return self.code in STOPPED

    @property
    def event(self) -> Event:
        """The job's event in the journal."""
        return "interrupted" if self.stopped else "failed" if self.code else "finished"


def attempt(call: Callable[[], Any], trace: Path | None = None) -> Outcome:
    """Call it, and never raise: the boundary of a job. A whole number is its exit code.

    Args:
        trace: The file that takes the traceback of a bug; None: the terminal, where the bug is not
            in the code of a user or --verbose is given.
    """
    try:
        result = call()
    except KeyboardInterrupt:
        return Outcome(130)
    except PlmctlError as error:
        remark(f"plmctl: {error}", FAIL)
        return Outcome(error.exit_code, str(error))
    except Exception as error:  # whatever a part of a user raises fails its job alone
        if why := describe_lack(error) or explain_unwritten(error):
            remark(f"plmctl: {why}", FAIL)
            return Outcome(exit_code(error), why)
        own = explain_own_code(error)
        why = own or f"{type(error).__name__}: {error}"
        if trace is not None:
            with open_file(trace, "a") as file:
                traceback.print_exc(file=file)
            why = f"{why.splitlines()[0]} (trace: {trace})"
        elif not own or hears(DETAIL):
            traceback.print_exc()
        remark(f"plmctl: {why}", FAIL)
        return Outcome(1, why)
    return Outcome(int(result or 0) if isinstance(result, int) else 0, result=result)


@dataclass(frozen=True)
class LauncherTask:
    """The function that a launcher of Hydra calls, in a process of its own, for one job of a
    multirun.

    The job ends with the process that started it, and only a signal is raised.
    """

    call: Callable[[dict[str, Any]], Outcome]  # is given the job's settings
    starter: int = field(default_factory=os.getpid)

    def __call__(self, composed: Any) -> Any:
        follow_launcher(self.starter)
        outcome = self.call(to_plain(composed))
        if outcome.stopped:
            raise KeyboardInterrupt
        return outcome.result


def enter(folder: str, here: str, execute: Execute) -> NoReturn:
    """Do a job as a process of its own: its log takes all output, its parent passes signals on."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # no longer that of the terminal
    os.chdir(here)
    own(Path(folder).parent)
    with open_file(Path(folder) / LOG, "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    follow_maker()
    sys.exit(work(Path(folder), execute))


def work(folder: Path, execute: Execute) -> int:
    """Execute the job of this folder, unless it is finished; returns the exit code."""
    with open_file(folder / LOCK, "w") as lock:
        # a process that an earlier, killed start left behind may still be saving
        fcntl.flock(lock, fcntl.LOCK_EX)
        events, name = JobEvents(folder.parent), folder.name
        if events.of(name).event == "finished":
            return 0
        record = parse_json((folder / RECORD).read_text(encoding="utf-8"))
        start = time.monotonic()
        with gather(WARN) as warnings:
            outcome = attempt(lambda: execute(record, folder / RUN), folder / LOG)
        more = {"label": record["label"], "seconds": round(time.monotonic() - start, 6)}
        if outcome.event == "finished":
            more |= {"kept": record["keep"], "warnings": [*dict.fromkeys(warnings)]}
        if outcome.event == "failed":
            more |= {"why": outcome.error or f"ended with code {outcome.code}"}
        events.write(outcome.event, name, **more)
        if outcome.event == "finished" and not record["keep"]:
            shutil.rmtree(admit(folder / RUN / "checkpoints"), ignore_errors=True)
    return outcome.code
