"""A folder of jobs: the state of each, and a log of what happened to it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from plmctl.core.errors import UsageError
from plmctl.jobs.job import RUN, Job, locate_runs, resolve
from plmctl.jobs.work import DONE, ERROR, LOCK, LOG, RECORD
from plmctl.storage.atomic import write_json

EVENTS = "log.jsonl"
STOPPED_EARLY = "stopped early"

Event = Literal["started", "resumed", "finished", "interrupted", "failed", "stopped", "skipped"]


@dataclass(frozen=True)
class State:
    """How a job stands; `why` is an error, or the rule that ended it.

    open: not done yet, or running. stopped: by a rule, early. skipped: what it needs failed.
    """

    kind: Literal["done", "stopped", "failed", "skipped", "open"]
    why: str = ""


class JobJournal:
    """How every job stands, by what it and earlier starts have left in its folder.

    Args:
        jobs: all jobs by name, each behind those that it needs.
        folder: where the folders of the jobs lie, each under the name of its job.
        tell: called with each event: what happened, to which job, and why.
        log: a file that gets a line for each event.
        rule: why a job is to be stopped early, from the folder of its run; "" where it is not.
    """

    def __init__(
        self,
        jobs: Mapping[str, Job],
        folder: Path,
        *,
        tell: Callable[[Event, Job, str], None] = lambda event, job, why: None,
        log: Path | None = None,
        rule: Callable[[Job, Path], str] = lambda job, run: "",
    ) -> None:
        self.jobs, self.folder, self.tell, self.log, self.rule = jobs, folder, tell, log, rule
        self.runs = locate_runs(jobs, folder.resolve())
        self.needed = {name for job in jobs.values() for name in job.needs}
        self.states = {name: self._found(job) for name, job in jobs.items()}

    def place(self, name: str) -> Path:
        """The folder of a job."""
        return self.folder / name

    @property
    def failed(self) -> bool:
        """Whether a job is not as it should be; one that a rule stopped is, with all that needs
        it.
        """
        judged = [state for state in self.states.values() if STOPPED_EARLY not in state.why]
        return any(state.kind in ("failed", "skipped", "open") for state in judged)

    @property
    def ended(self) -> int:
        """How many jobs are not open any more."""
        return sum(state.kind != "open" for state in self.states.values())

    def ready(self) -> Iterator[Job]:
        """Yield the open jobs whose needs are done; those whose needs never will be are settled."""
        for name, job in self.jobs.items():
            if self.states[name].kind != "open":
                continue
            needs = {other: self.states[other] for other in job.needs}
            lost = [other for other, state in needs.items() if state.kind not in ("done", "open")]
            if lost:
                early = STOPPED_EARLY in needs[lost[0]].why
                why = f"{self.jobs[lost[0]].label} {'was stopped early' if early else 'failed'}"
                self.settle(name, State("skipped", why))
            elif all(state.kind == "done" for state in needs.values()):
                yield job

    def prepare(self, job: Job) -> Path:
        """Write down what the job is, in its folder, which is returned."""
        place = self.place(job.name)
        self._say("resumed" if (place / RUN).exists() else "started", job)
        place.mkdir(parents=True, exist_ok=True)
        # of a job that a rule had stopped, or whose run or checkpoints are gone
        (place / DONE).unlink(missing_ok=True)
        record = {
            "verb": job.verb,
            "label": job.label,
            "config": resolve(job.config, self.runs),
            "words": resolve(job.words, self.runs),
            "plugins": job.plugins,
            "keep": job.keep or job.name in self.needed,
            "plan": job.config,
        }
        write_json(place / RECORD, record)
        return place

    def conclude(self, job: Job, code: int | None, *, interrupted: bool = False) -> None:
        """Settle a job by what it left behind.

        Args:
            job: one that was running.
            code: the exit code of its process, below 0 for a signal; None where it is not known.
            interrupted: whether a signal has ended the whole.
        """
        place, failed = self.place(job.name), self.place(job.name) / ERROR
        if stopped := self.stopped(job):
            write_json(place / DONE, {"stopped": stopped.why, "kept": True})
            state = stopped
        elif not code and (place / DONE).is_file():
            state = State("done")
        elif interrupted:
            state = State("open")
        elif failed.is_file():
            state = State("failed", json.loads(failed.read_text(encoding="utf-8"))["error"])
        elif code is not None and code < 0:
            state = State("failed", f"killed by signal {-code}")
        else:
            state = State("failed", f"ended with code {code}; see {place / LOG}")
        self.settle(job.name, state)

    def settle(self, name: str, state: State) -> None:
        """Note the state of a job."""
        self.states[name] = state
        events: dict[str, Event] = {"done": "finished", "open": "interrupted"}
        self._say(events.get(state.kind, state.kind), self.jobs[name], state.why)  # type: ignore[arg-type]

    def stopped(self, job: Job) -> State | None:
        """The state of a job that a rule ends early; None where none does."""
        why = self.rule(job, Path(self.runs[job.name]))
        return State("stopped", f"{STOPPED_EARLY}: {why}") if why else None

    def _found(self, job: Job) -> State:
        """What an earlier start has left; a job whose run, or whose checkpoints that are needed,
        are gone is open.
        """
        done = self.place(job.name) / DONE
        if not done.is_file():
            return State("open")
        if stopped := self.stopped(job):
            return stopped
        record = json.loads(done.read_text(encoding="utf-8"))
        gone = not record.get("kept", True) and job.name in self.needed
        whole = not record.get("stopped") and not gone and Path(self.runs[job.name]).is_dir()
        return State("done") if whole else State("open")

    def _say(self, event: Event, job: Job, why: str = "") -> None:
        self.tell(event, job, why)
        if self.log:
            record: dict[str, object] = {"time": round(time.time(), 2), "event": event}
            record |= {"job": job.name, "label": job.label} | ({"why": why} if why else {})
            with self.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(record) + "\n")


@contextlib.contextmanager
def hold_folder(
    folder: Path, settings: Mapping[str, Any], *, kind: str, command: str
) -> Iterator[None]:
    """Hold the folder of a study or a chain, which no other process may have open.

    Args:
        folder: made if it is not there; what is in it stays.
        settings: written into FOLDER/<kind>.json.
        kind: "study" or "chain".
        command: whose folders these are, for messages: "plmctl ablate".

    Raises:
        UsageError: it holds something else, or another process is at work there.
    """
    there = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    if folder.is_file() or not (there <= {LOCK} or there >= {LOCK, f"{kind}.json"}):
        raise UsageError(
            f"out={str(folder)!r}: holds something that is not a {kind}\n"
            "  fix: out=<another folder>"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"out={str(folder)!r}: another {command} is at work there") from None
        write_json(folder / f"{kind}.json", dict(settings))
        yield
