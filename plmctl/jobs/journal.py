"""The jobs of a folder: how each stands, and what happens to it."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from plmctl.core.errors import UsageError
from plmctl.jobs.job import RUN, Job, locate_runs, resolve
from plmctl.jobs.work import LOCK, LOG, RECORD
from plmctl.storage.atomic import write_json
from plmctl.storage.gate import admit, open_file, own
from plmctl.storage.job_events import Event, JobEvents

STOPPED_EARLY = "stopped early"
EVENTS: dict[str, Event] = {
    "done": "finished",
    "open": "interrupted",
    "failed": "failed",
    "stopped": "stopped",
    "skipped": "skipped",
}


@dataclass(frozen=True)
class State:
    """How a job stands; `why` is an error, or the rule that ended it.

    open: not done yet, or running. stopped: by a rule, early. skipped: what it needs failed.
    """

    kind: Literal["done", "stopped", "failed", "skipped", "open"]
    why: str = ""


class JobJournal:
    """How every job stands, by the journal in its folder, and what is written into that.

    Args:
        jobs: All jobs by name, each behind its needs.
        folder: The folder of the journal and of the jobs, which are folders under their names.
        tell: called with each event: what happened, to which job, and why.
        rule: why a job is to be stopped early, from the folder of its run; "" where it is not.
        ended: called after a job is done.
    """

    def __init__(
        self,
        jobs: Mapping[str, Job],
        folder: Path,
        *,
        tell: Callable[[Event, Job, str], None] = lambda event, job, why: None,
        rule: Callable[[Job, Path], str] = lambda job, run: "",
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder, self.tell, self.rule, self.ended_one = folder, tell, rule, ended
        self.events = JobEvents(folder)
        self.jobs: dict[str, Job] = {}
        self.states: dict[str, State] = {}
        self.add(jobs)

    def add(self, jobs: Mapping[str, Job]) -> None:
        """Take further jobs in, each behind its needs; the others stay as they are."""
        self.jobs |= jobs
        self.runs = locate_runs(self.jobs, self.folder.resolve())
        self.needed = {name for job in self.jobs.values() for name in job.needs}
        new = (name for name in jobs if name not in self.states)
        self.states |= {name: self.find_state(self.jobs[name]) for name in new}

    def locate(self, name: str) -> Path:
        """The folder of a job."""
        return self.folder / name

    @property
    def failed(self) -> bool:
        """Whether a job is not as it should be; what a rule stopped is, and all that needs it."""
        judged = [state for state in self.states.values() if STOPPED_EARLY not in state.why]
        return any(state.kind in ("failed", "skipped", "open") for state in judged)

    @property
    def done(self) -> list[Job]:
        """The jobs that are done."""
        return [job for name, job in self.jobs.items() if self.states[name].kind == "done"]

    @property
    def others(self) -> list[str]:
        """The finished jobs of the folder that are none of these."""
        ended = [name for name, last in self.events.last.items() if last.event == "finished"]
        return [name for name in ended if name not in self.jobs]

    @property
    def ended(self) -> int:
        """How many jobs are not open any more."""
        return sum(state.kind != "open" for state in self.states.values())

    def ready(self) -> Iterator[Job]:
        """Yield the open jobs whose needs are done; skip jobs whose needs will never be done."""
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
        folder = self.locate(job.name)
        self.events.read()
        # a process that an earlier, killed start left behind may have ended it by now
        if self.find_state(job).kind != "done":
            event: Event = "resumed" if (folder / RUN).exists() else "started"
            self.tell(event, job, "")
            admit(folder).mkdir(parents=True, exist_ok=True)
            self.events.write(event, job.name, label=job.label)
        record = {
            "verb": job.verb,
            "label": job.label,
            "config": resolve(job.config, self.runs),
            "words": resolve(job.words, self.runs),
            "plugins": job.plugins,
            "keep": job.keep or job.name in self.needed,
            "plan": job.config,
        }
        write_json(folder / RECORD, record)
        return folder

    def conclude(self, job: Job, code: int | None, *, interrupted: bool = False) -> None:
        """Settle a job by what it left behind.

        Args:
            job: one that was running.
            code: the exit code of its process, below 0 for a signal; None where it is not known.
            interrupted: whether a signal has ended the whole.
        """
        self.events.read()
        last = self.events.of(job.name)
        if stopped := self.find_stop(job):
            state = stopped
        elif not code and last.event == "finished":
            state = State("done")
        elif interrupted:
            state = State("open")
        elif last.event == "failed":
            state = State("failed", last.why)
        elif code is not None and code < 0:
            state = State("failed", f"killed by signal {-code}")
        else:
            log = self.locate(job.name) / LOG
            state = State("failed", f"ended with code {code}; see {log}")
        self.settle(job.name, state)

    def settle(self, name: str, state: State) -> None:
        """Set the state of a job, and write it down where the job itself has not."""
        self.states[name] = state
        event, job = EVENTS[state.kind], self.jobs[name]
        if self.events.of(name).event != event:
            self.events.write(event, name, label=job.label, why=state.why)
        self.tell(event, job, state.why)
        if state.kind == "done":
            self.ended_one()

    def find_stop(self, job: Job) -> State | None:
        """The state of a job that a rule ends early; None where none does."""
        why = self.rule(job, Path(self.runs[job.name]))
        return State("stopped", f"{STOPPED_EARLY}: {why}") if why else None

    def find_state(self, job: Job) -> State:
        """How earlier starts left a job; one whose run is gone is open, as is one whose checkpoints
        are gone but needed.
        """
        last = self.events.of(job.name)
        if last.event not in ("finished", "stopped"):
            return State("open")
        if stopped := self.find_stop(job):
            return stopped
        gone = not last.kept and job.name in self.needed
        whole = last.event == "finished" and not gone and Path(self.runs[job.name]).is_dir()
        return State("done") if whole else State("open")


@contextlib.contextmanager
def hold_folder(
    folder: Path, settings: Mapping[str, Any], *, kind: str, command: str
) -> Iterator[None]:
    """Hold the folder of a study or a chain, which no other process may have open.

    Args:
        folder: The folder; it is made if missing, and its files stay.
        settings: written into FOLDER/<kind>.json.
        kind: "study" or "chain".
        command: The command that writes these folders, for messages: "plmctl ablate".

    Raises:
        UsageError: it holds something else, or another process is at work there.
    """
    there = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    # unfinished folders of a start that was killed
    halves = {name for name in there if name.startswith(f".{kind}.json.")}
    there -= halves
    if folder.is_file() or not (there <= {LOCK} or there >= {LOCK, f"{kind}.json"}):
        raise UsageError(
            f"out={str(folder)!r}: holds something that is not a {kind}\n"
            "  fix: out=<another folder>"
        )
    admit(own(folder)).mkdir(parents=True, exist_ok=True)
    with open_file(folder / LOCK, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"out={str(folder)!r}: another {command} is at work there") from None
        for name in halves:
            admit(folder / name).unlink(missing_ok=True)
        write_json(folder / f"{kind}.json", dict(settings))
        yield
