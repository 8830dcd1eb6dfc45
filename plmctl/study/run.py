"""The jobs of a plan and how each stands; what an earlier start has finished stays finished."""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from plmctl.core.errors import UsageError
from plmctl.core.terminal import tell
from plmctl.storage.atomic import write_json
from plmctl.study.early import hopeless
from plmctl.study.job import DONE, ERROR, LOG, RUN
from plmctl.study.job import JOB as RECORD
from plmctl.study.plan import Job, Plan, resolved

JOBS, EVENTS, LOCK = "jobs", "log.jsonl", "lock"

Say = Callable[[str], None]


@dataclass(frozen=True)
class State:
    """What is known of a job; `why` is an error, or where the rule of the study ended it."""

    kind: Literal["done", "stopped", "failed", "skipped", "open"]
    why: str = ""


class Runner(ABC):
    """Runs what is not done yet, somehow; `states` says how every job of the plan stands."""

    def __init__(
        self, plan: Plan, folder: Path, *, plugins: tuple[str, ...] = (), say: Say = tell
    ) -> None:
        self.plan, self.folder, self.plugins, self.say = plan, folder.resolve(), plugins, say
        self.states = {name: self._found(job) for name, job in plan.jobs.items()}

    @abstractmethod
    def run(self) -> int:
        """0 when all jobs are done, 1 when one failed, 130, 143 or 129 when a signal ended the
        study.
        """

    def place(self, name: str) -> Path:
        return self.folder / JOBS / name

    def failed(self) -> bool:
        """Whether a job is not as it should be; those that a stopped one would have started are
        no failures.
        """
        judged = [state for state in self.states.values() if "stopped early" not in state.why]
        return any(state.kind in ("failed", "skipped", "open") for state in judged)

    def ready(self) -> Iterator[Job]:
        """The open jobs whose needs are done; those whose needs never will be are settled."""
        for name, job in self.plan.jobs.items():
            if self.states[name].kind != "open":
                continue
            blocked = [
                other
                for other in job.needs
                if self.states[other].kind in ("failed", "skipped", "stopped")
            ]
            if blocked:
                early = "stopped early" in self.states[blocked[0]].why
                what = "was stopped early" if early else "failed"
                self.settle(name, State("skipped", f"{self.plan.jobs[blocked[0]].label} {what}"))
            elif all(self.states[other].kind == "done" for other in job.needs):
                yield job

    def prepare(self, job: Job) -> Path:
        """Write down what the job is, in the folder that is returned."""
        place = self.place(job.name)
        place.mkdir(parents=True, exist_ok=True)
        runs = {name: str(self.place(name) / RUN) for name in self.plan.jobs}
        keep = job.verb != "finetune" or self.plan.study.keep or self.plan.needed(job.name)
        again = (place / RUN).exists()
        # of a job that a rule had stopped, or whose checkpoints are gone
        (place / DONE).unlink(missing_ok=True)
        write_json(
            place / RECORD,
            {
                "verb": job.verb,
                "label": job.label,
                "config": resolved(job.config, runs),
                "words": job.words,
                "plugins": self.plugins,
                "keep": keep,
            },
        )
        self._event("resumed" if again else "started", job)
        return place

    def outcome(self, job: Job, code: int | None, *, ended: bool = False) -> State:
        """How a job stands by what it left behind; `code`: how its process ended, `ended`: by a
        signal to the study.
        """
        place = self.place(job.name)
        if stopped := self.stopped(job):
            write_json(place / DONE, {"stopped": stopped.why, "kept": True})
            return stopped
        if not code and (place / DONE).is_file():
            return State("done")
        if ended:
            return State("open")
        if (place / ERROR).is_file():
            return State("failed", json.loads((place / ERROR).read_text(encoding="utf-8"))["error"])
        killed = (
            f"killed by signal {-code}"
            if code is not None and code < 0
            else f"ended with code {code}"
        )
        return State(
            "failed", killed if code is not None and code < 0 else f"{killed}; see {place / LOG}"
        )

    def stopped(self, job: Job) -> State | None:
        """The rule of the study that ends this pretraining, if one does."""
        run = self.place(job.name) / RUN
        why = hopeless(run, self.plan.study, self._rate(job.name)) if job.verb == "pretrain" else ""
        return State("stopped", f"stopped early: {why}") if why else None

    def settle(self, name: str, state: State) -> None:
        self.states[name] = state
        self._event(
            {"done": "finished", "open": "interrupted"}.get(state.kind, state.kind),
            self.plan.jobs[name],
            state.why,
        )

    def _found(self, job: Job) -> State:
        """What an earlier start has left; a job whose checkpoints were dropped, but are needed
        now, is run again.
        """
        place = self.place(job.name)
        if not (place / DONE).is_file():
            return State("open")
        record = json.loads((place / DONE).read_text(encoding="utf-8"))
        if record.get("stopped"):
            return self.stopped(job) or State("open")
        if self.plan.needed(job.name) and not record["kept"]:
            return State("open")
        return self.stopped(job) or State("done")

    def _rate(self, name: str) -> float:
        arms = (cell.arm for cell in self.plan.cells if cell.pretrain == name)
        return next((self.plan.arms[arm].flops_per_token for arm in arms), 0.0)

    def _event(self, event: str, job: Job, why: str = "") -> None:
        """One line for people, one in the study's log."""
        total, ended = len(self.states), sum(state.kind != "open" for state in self.states.values())
        self.say(
            f"[{ended}/{total}] {event}: {job.label}" + (f": {why.splitlines()[0]}" if why else "")
        )
        record = {
            "time": round(time.time(), 2),
            "event": event,
            "job": job.name,
            "label": job.label,
        }
        with (self.folder / EVENTS).open("a", encoding="utf-8") as log:
            log.write(json.dumps({**record, "why": why} if why else record) + "\n")


@contextlib.contextmanager
def opened(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    kind: str = "study",
    command: str = "plmctl ablate",
) -> Iterator[IO[str]]:
    """The folder of a study, in no other process' hands; what is in it stays, unless it is
    something else's.
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
        yield lock
