"""Who runs the jobs that are ready: this process, processes side by side, a cluster, or a Hydra
launcher.

Each returns the exit code: 0 when all jobs are as they should be, 1 when one failed. It is 130, 143
or 129 when a signal ended all. Finished jobs stay finished.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from plmctl.config.composer import open_composer
from plmctl.config.launcher import Launcher, read_launcher
from plmctl.config.quoting import quote
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.machine import count_processors
from plmctl.jobs.cluster import Cluster
from plmctl.jobs.command import execute
from plmctl.jobs.display import show_jobs
from plmctl.jobs.job import Job
from plmctl.jobs.journal import JobJournal
from plmctl.jobs.on_cluster import ClusterJob
from plmctl.jobs.work import LOG, Execute, LauncherTask, Outcome, enter, work
from plmctl.storage.gate import open_file, own
from plmctl.storage.paths import SUBMITTED
from plmctl.training.processes.threads import THREADS
from plmctl.training.stop import ends_at_once, listen

PRELOAD = (  # imports of every job, some of them late: seconds of each
    "plmctl.jobs.command",
    "plmctl.runs.resume",
    "plmctl.runs.pretraining",
    "plmctl.runs.finetuning",
    "plmctl.use.labelling",
    "torch._dynamo",
    "torch.utils.tensorboard",
)
PAUSE = 0.05  # seconds between two looks at the running jobs
LOOK = 1.0  # and between two looks at the rule that stops them


def run_here(journal: JobJournal, execute: Execute = execute) -> int:
    """Run one job after the other in this process, whose terminal shows what they print; the first
    that does not end well ends all, with its exit code.
    """
    for job in journal.ready():
        code = work(journal.prepare(job), execute)
        journal.conclude(job, code, interrupted=code > 128)
        if code:
            return code
    return int(journal.failed)


class Processes:
    """Every job is a process of its own, `count` of them at a time; they end with this one."""

    def __init__(
        self,
        journal: JobJournal,
        count: int,
        execute: Execute = execute,
        preload: Sequence[str] = PRELOAD,
    ) -> None:
        self.journal, self.count, self.execute = journal, count, execute
        self._children: dict[str, BaseProcess] = {}
        # imports torch once, for all jobs
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))
        self._looked = 0.0
        self._signal = 0

    def run(self) -> int:
        """Run all jobs; returns the exit code."""
        with self._share_cores(), listen(self._hear):
            try:
                while not self._signal and (self._fill() or self._children):
                    self._wait()
            finally:
                self._end()
        return 128 + self._signal if self._signal else int(self.journal.failed)

    @contextlib.contextmanager
    def _share_cores(self) -> Iterator[None]:
        """Jobs have equal shares of the cores, unless whoever started us has decided that."""
        ours = self.count > 1 and THREADS not in os.environ
        if ours:
            os.environ[THREADS] = str(max(1, count_processors() // self.count))
        try:
            yield
        finally:
            if ours:
                os.environ.pop(THREADS, None)

    def _fill(self) -> bool:
        """Start jobs where one is free; whether any is waiting."""
        waiting = [job for job in self.journal.ready() if job.name not in self._children]
        for job in waiting[: self.count - len(self._children)]:
            self._start(job)
        return bool(waiting)

    def _start(self, job: Job) -> None:
        folder = str(self.journal.prepare(job))
        child = self._context.Process(target=enter, args=(folder, os.getcwd(), self.execute))
        with _hold_interrupts():
            child.start()
        self._children[job.name] = child

    def _wait(self) -> None:
        time.sleep(PAUSE)
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            for name, child in self._children.items():
                if self.journal.find_stop(self.journal.jobs[name]):
                    child.terminate()
        self._collect()

    def _collect(self) -> None:
        for name, child in list(self._children.items()):
            if child.exitcode is not None:
                del self._children[name]
                job = self.journal.jobs[name]
                self.journal.conclude(job, child.exitcode, interrupted=bool(self._signal))

    def _hear(self, number: int, frame: object) -> None:
        """End after the first signal; the second one kills what still runs."""
        if self._signal and not ends_at_once(number):
            return
        for child in self._children.values() if self._signal else ():
            child.kill()
        self._signal = number

    def _end(self) -> None:
        """Have the jobs that still run save and end, as after a Ctrl-C of their own."""
        for child in self._children.values():
            child.terminate()
        while self._children:
            for child in self._children.values():
                child.join(PAUSE)
            self._collect()


@contextlib.contextmanager
def _hold_interrupts() -> Iterator[None]:
    """Hear Ctrl-C later. Processes that start meanwhile never hear Ctrl-C of the terminal. It would
    end the process that forks all others, which takes seconds to import their modules.
    """
    resource_tracker.ensure_running()  # whose start would let Ctrl-C through
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def run_jobs(journal: JobJournal, count: int, launcher: tuple[str, ...]) -> int:
    """Run all jobs, and show what happens to them.

    Args:
        count: Jobs at the same time, on this machine.
        launcher: The words of a launcher, which starts the jobs instead; none: this machine does.
    """
    ours = read_launcher(launcher)
    with show_jobs(journal, live=not launcher):
        if ours is not None:
            return run_submitted(journal, ours)
        if launcher:
            return run_launched(journal, launcher)
        return Processes(journal, count).run()


def check_launcher(words: tuple[str, ...], count: int, *, name: str, kind: str) -> None:
    """Raise for words of a launcher that jobs cannot have.

    Args:
        count: Jobs at the same time, on this machine.
        name: The setting of that number.
        kind: The command's work, in messages: "study".
    """
    ours = read_launcher(words)
    if ours is not None and ours.nodes > 1:
        allowed = f"1: each job of a {kind} has one machine"
        raise ConfigError("nodes", ours.nodes, allowed, fix="nodes=1, or leave it out")
    if words and not (ours or any(word.startswith("hydra/launcher=") for word in words)):
        raise UsageError(f"{words[0]}: of which launcher?\n  fix: hydra/launcher=<name> before it")
    if words and name == "processes" and count != 1:
        allowed = "the launcher decides how many jobs run at a time"
        raise ConfigError(name, count, allowed, fix="leave it out")


def run_launched(journal: JobJournal, words: tuple[str, ...], execute: Execute = execute) -> int:
    """Give all ready jobs to a Hydra launcher, then the jobs that become ready through them.

    A rule that stops jobs early is applied when they have ended: results are the same, the time is
    not saved.

    Args:
        words: the launcher and its settings, `hydra/launcher=submitit_slurm` first.
        execute: The work of each of them.
    """
    sweep = [
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
        quote(f"hydra.sweep.dir={journal.folder.resolve().parent / 'launched'}"),
    ]
    task = LauncherTask(partial(_work_launched, os.getcwd(), execute))
    while jobs := list(journal.ready()):
        prepared = [str(journal.prepare(job).resolve()) for job in jobs]
        folders = ",".join(quote(f"run.dir={folder}").partition("=")[2] for folder in prepared)
        with open_composer("ablate") as composer:
            words_of_jobs = [f"+job_path={folders}", *sweep, *words]
            interrupted = composer.multirun(task, words_of_jobs, plain=True)
        for job in jobs:
            journal.conclude(job, None, interrupted=interrupted)
        if interrupted:
            return 130
    return int(journal.failed)


def run_submitted(journal: JobJournal, launcher: Launcher, execute: Execute = execute) -> int:
    """Give all ready jobs to a cluster, then the jobs that become ready through them."""
    here = os.getcwd()
    cluster = Cluster(launcher, journal.folder.resolve().parent / SUBMITTED)
    while jobs := list(journal.ready()):
        prepared = [{"job_path": str(journal.prepare(job).resolve())} for job in jobs]
        work = [partial(_work_launched, here, execute, settings) for settings in prepared]
        ended = dict[int, Outcome]()
        code = cluster.run([ClusterJob(each, here) for each in work], ended.__setitem__)
        for index, job in enumerate(jobs):
            outcome = ended.get(index, Outcome(130))
            journal.conclude(job, outcome.code, interrupted=outcome.stopped)
        if code:
            return code
        if any(journal.states[job.name].kind == "open" for job in jobs):
            return 130  # a person has cancelled them
    return int(journal.failed)


def _work_launched(here: str, execute: Execute, settings: dict[str, Any]) -> Outcome:
    """Do a job where a launcher has put it, on a machine that sees the same files; relative paths
    start from `here`.
    """
    folder = Path(settings["job_path"])
    own(folder.parent)
    with (
        contextlib.chdir(here),
        open_file(folder / LOG, "a") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        return Outcome(work(folder, execute))
