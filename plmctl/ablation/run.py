"""The jobs of a plan, one after the other or side by side; what an earlier start has finished stays finished."""

from __future__ import annotations

import contextlib
import fcntl
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any, Literal

from plmctl.ablation.early import hopeless
from plmctl.ablation.job import DONE, ERROR, LOG, RUN, enter, write
from plmctl.ablation.job import JOB as RECORD
from plmctl.ablation.plan import Job, Plan, resolved
from plmctl.data.encoding import cores
from plmctl.errors import UsageError

JOBS, EVENTS, LOCK = "jobs", "log.jsonl", "lock"
PRELOAD = [  # what every job imports, some of it late: seconds of each
    "plmctl.ablation.job", "plmctl.config.resume", *(f"plmctl.commands.{verb}" for verb in ("pretrain", "finetune", "eval")),
    "torch._dynamo", "torch.utils.tensorboard",
]  # fmt: skip
PAUSE = 0.05  # seconds between two looks at the running jobs
LOOK = 1.0  # and between two looks at their curves

Say = Callable[[str], None]


@dataclass(frozen=True)
class State:
    """What is known of a job; `why` is an error, or where the rule of the study ended it."""

    kind: Literal["done", "stopped", "failed", "skipped", "open"]
    why: str = ""


class Runner:
    """Runs what is not done yet; `states` says how every job of the plan stands."""

    def __init__(self, plan: Plan, folder: Path, *, processes: int, plugins: tuple[str, ...] = (), say: Say = print) -> None:
        self.plan, self.folder, self.processes, self.plugins, self.say = plan, folder.resolve(), processes, plugins, say
        self.states = {name: self._found(job) for name, job in plan.jobs.items()}
        self._children: dict[str, BaseProcess] = {}
        self._context = multiprocessing.get_context("forkserver")  # imports torch once, for all jobs
        self._context.set_forkserver_preload(PRELOAD)
        self._looked = 0.0
        self._signal = 0

    def place(self, name: str) -> Path:
        return self.folder / JOBS / name

    def run(self) -> int:
        """0 when all jobs are done, 1 when one failed, 130 or 143 when a signal ended the study."""
        if self.processes > 1:  # jobs share the cores, unless whoever started us has decided that
            os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // self.processes)))
        with self._listening():
            try:
                while not self._signal and (self._start() or self._children):
                    self._wait()
            finally:
                self._end_children()
        if self._signal:
            return 128 + self._signal
        return int(any(state.kind in ("failed", "skipped", "open") for state in self._judged()))

    def _judged(self) -> list[State]:
        """Jobs that a stopped one would have started are no failures."""
        return [state for state in self.states.values() if "stopped early" not in state.why]

    def _found(self, job: Job) -> State:
        """What an earlier start has left; a job whose checkpoints were dropped, but are needed now, is run again."""
        place = self.place(job.name)
        if not (place / DONE).is_file():
            return State("open")
        record = json.loads((place / DONE).read_text(encoding="utf-8"))
        if record.get("stopped"):
            return self._stopped(job, place) or State("open")
        if self.plan.needed(job.name) and not record["kept"]:
            return State("open")
        return self._stopped(job, place) or State("done")

    def _stopped(self, job: Job, place: Path) -> State | None:
        why = hopeless(place / RUN, self.plan.study, self._rate(job.name)) if job.verb == "pretrain" else ""
        return State("stopped", f"stopped early: {why}") if why else None

    def _rate(self, name: str) -> float:
        arms = (cell.arm for cell in self.plan.cells if cell.pretrain == name)
        return next((self.plan.arms[arm].flops_per_token for arm in arms), 0.0)

    def _start(self) -> bool:
        """Fill the free places with the first jobs that are ready; whether any is waiting."""
        waiting = False
        for name, job in self.plan.jobs.items():
            if self.states[name].kind != "open" or name in self._children:
                continue
            blocked = [other for other in job.needs if self.states[other].kind in ("failed", "skipped", "stopped")]
            if blocked:
                early = "stopped early" in self.states[blocked[0]].why
                what = "was stopped early" if early else "failed"
                self._settle(name, State("skipped", f"{self.plan.jobs[blocked[0]].label} {what}"))
                continue
            waiting = True
            if len(self._children) < self.processes and all(self.states[other].kind == "done" for other in job.needs):
                self._launch(job)
        return waiting

    def _launch(self, job: Job) -> None:
        place = self.place(job.name)
        place.mkdir(parents=True, exist_ok=True)
        runs = {name: str(self.place(name) / RUN) for name in self.plan.jobs}
        keep = job.verb != "finetune" or self.plan.study.keep or self.plan.needed(job.name)
        again = (place / RUN).exists()
        (place / DONE).unlink(missing_ok=True)  # of a job that a rule had stopped, or whose checkpoints are gone
        write(place / RECORD, {
            "verb": job.verb, "label": job.label, "config": resolved(job.config, runs), "words": job.words,
            "plugins": self.plugins, "keep": keep,
        })  # fmt: skip
        child = self._context.Process(target=enter, args=(str(place), os.getcwd()))
        child.start()
        self._children[job.name] = child
        self._event("resumed" if again else "started", job)

    def _wait(self) -> None:
        time.sleep(PAUSE)
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            for name, child in self._children.items():
                if self._stopped(self.plan.jobs[name], self.place(name)):
                    child.terminate()
        for name, child in list(self._children.items()):
            if child.exitcode is not None:
                del self._children[name]
                self._settle(name, self._outcome(self.plan.jobs[name], child.exitcode))

    def _outcome(self, job: Job, code: int) -> State:
        place = self.place(job.name)
        if stopped := self._stopped(job, place):
            write(place / DONE, {"stopped": stopped.why, "kept": True})
            return stopped
        if code == 0 and (place / DONE).is_file():
            return State("done")
        if self._signal:
            return State("open")
        if (place / ERROR).is_file():
            return State("failed", json.loads((place / ERROR).read_text(encoding="utf-8"))["error"])
        return State("failed", f"killed by signal {-code}" if code < 0 else f"ended with code {code}; see {place / LOG}")

    def _settle(self, name: str, state: State) -> None:
        self.states[name] = state
        self._event({"done": "finished", "open": "interrupted"}.get(state.kind, state.kind), self.plan.jobs[name], state.why)

    def _event(self, event: str, job: Job, why: str = "") -> None:
        """One line for people, one in the study's log."""
        total, ended = len(self.states), sum(state.kind != "open" for state in self.states.values())
        self.say(f"[{ended}/{total}] {event}: {job.label}" + (f": {why.splitlines()[0]}" if why else ""))
        record = {"time": round(time.time(), 2), "event": event, "job": job.name, "label": job.label}
        with (self.folder / EVENTS).open("a", encoding="utf-8") as log:
            log.write(json.dumps({**record, "why": why} if why else record) + "\n")

    def _end_children(self) -> None:
        """Jobs that still run save and end, as after a Ctrl-C of their own; a second signal ends them at once."""
        for child in self._children.values():
            child.terminate()
        while self._children:
            for name, child in list(self._children.items()):
                child.join(PAUSE)
                if child.exitcode is not None:
                    del self._children[name]
                    self._settle(name, self._outcome(self.plan.jobs[name], child.exitcode))

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        def hear(number: int, frame: object) -> None:
            for child in self._children.values() if self._signal else ():
                child.kill()
            self._signal = number

        before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def opened(folder: Path, settings: Mapping[str, Any]) -> Iterator[IO[str]]:
    """The folder of a study, in no other process' hands; what is in it stays, unless it is something else's."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / LOCK).is_file()):
        raise UsageError(f"out={str(folder)!r}: holds something that is not a study\n  fix: out=<another folder>")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"out={str(folder)!r}: another plmctl ablate is at work there") from None
        write(folder / "study.json", dict(settings))
        yield lock
