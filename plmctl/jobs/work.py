"""One job inside the process that runs it: locked, recorded, and ended in one of its files.

FOLDER/job.json      what the job is           FOLDER/run/          what its command makes
FOLDER/done.json     it ended well             FOLDER/error.json    it did not, and why
FOLDER/log.txt       what it printed           FOLDER/seconds.json  how long it has run by now
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from plmctl.core.children import follow_maker
from plmctl.core.errors import PlmctlError
from plmctl.core.terminal import remark
from plmctl.jobs.job import RUN
from plmctl.storage.atomic import write_json
from plmctl.training.stop import STOPPED

RECORD, DONE, ERROR = "job.json", "done.json", "error.json"
LOG, SECONDS, LOCK = "log.txt", "seconds.json", "lock"

# does what a record says, in the folder of its run; returns the exit code
Execute = Callable[[dict[str, Any], Path], int]


@dataclass(frozen=True)
class Outcome:
    """How a call ended: with a result, with an error that was printed, or by a signal."""

    code: int
    error: str = ""
    result: Any = None

    @property
    def stopped(self) -> bool:
        return self.code in STOPPED


def attempt(call: Callable[[], Any]) -> Outcome:
    """Call it, and never raise: the boundary of a job. A whole number is its exit code."""
    try:
        result = call()
    except KeyboardInterrupt:
        return Outcome(130)
    except PlmctlError as error:
        remark(f"plmctl: {error}")
        return Outcome(error.exit_code, str(error))
    except Exception as error:
        traceback.print_exc()
        return Outcome(1, f"{type(error).__name__}: {error}")
    return Outcome(int(result or 0) if isinstance(result, int) else 0, result=result)


def enter(folder: str, here: str, execute: Execute) -> NoReturn:
    """Do a job as a process of its own: its log takes all output, its parent passes signals on."""
    os.setsid()
    os.chdir(here)
    with (Path(folder) / LOG).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    follow_maker()
    sys.exit(work(Path(folder), execute))


def work(folder: Path, execute: Execute) -> int:
    """Execute the job of this folder, unless it is done; returns the exit code."""
    with (folder / LOCK).open("w") as lock:
        # a process that an earlier, killed start left behind may still be saving
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / DONE).is_file():
            return 0
        (folder / ERROR).unlink(missing_ok=True)
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        start = time.monotonic()
        try:
            outcome = attempt(lambda: execute(record, folder / RUN))
        finally:
            write_json(folder / SECONDS, read_seconds(folder) + time.monotonic() - start)
        if outcome.code == 0:
            write_json(folder / DONE, {"kept": record["keep"]})
            if not record["keep"]:
                shutil.rmtree(folder / RUN / "checkpoints", ignore_errors=True)
        elif not outcome.stopped:
            error = outcome.error or f"ended with code {outcome.code}"
            write_json(folder / ERROR, {"code": outcome.code, "error": error})
    return outcome.code


def read_seconds(folder: Path) -> float:
    """How long the job has run, over all starts."""
    file = folder / SECONDS
    return float(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else 0.0
