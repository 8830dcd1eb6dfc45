"""The jobs of a study on this machine, one after the other or side by side."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import Any

from plmctl.data.encoding import cores
from plmctl.study.job import enter
from plmctl.study.plan import Job
from plmctl.study.run import Runner
from plmctl.training.stop import hearing

PRELOAD = [  # what every job imports, some of it late: seconds of each
    "plmctl.study.job",
    "plmctl.run.resume",
    *(f"plmctl.commands.{verb}" for verb in ("pretrain", "finetune", "eval")),
    "torch._dynamo",
    "torch.utils.tensorboard",
]
PAUSE = 0.05  # seconds between two looks at the running jobs
LOOK = 1.0  # and between two looks at their curves


class Local(Runner):
    """Every job is a process of its own, `processes` of them at a time."""

    def __init__(self, *settings: Any, processes: int, **others: Any) -> None:
        super().__init__(*settings, **others)
        self.processes = processes
        self._children: dict[str, BaseProcess] = {}
        # imports torch once, for all jobs
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOAD)
        self._looked = 0.0
        self._signal = 0

    def run(self) -> int:
        if self.processes > 1:  # jobs share the cores, unless whoever started us has decided that
            os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // self.processes)))
        with self._listening():
            try:
                while not self._signal and (self._start() or self._children):
                    self._wait()
            finally:
                self._end_children()
        return 128 + self._signal if self._signal else int(self.failed())

    def _start(self) -> bool:
        """Fill the free places with the first jobs that are ready; whether any is waiting."""
        waiting = False
        for job in self.ready():
            if job.name not in self._children:
                waiting = True
                if len(self._children) < self.processes:
                    self._launch(job)
        return waiting

    def _launch(self, job: Job) -> None:
        child = self._context.Process(target=enter, args=(str(self.prepare(job)), os.getcwd()))
        child.start()
        self._children[job.name] = child

    def _wait(self) -> None:
        time.sleep(PAUSE)
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            for name, child in self._children.items():
                if self.stopped(self.plan.jobs[name]):
                    child.terminate()
        self._collect()

    def _collect(self) -> None:
        for name, child in list(self._children.items()):
            if child.exitcode is not None:
                del self._children[name]
                self.settle(
                    name,
                    self.outcome(self.plan.jobs[name], child.exitcode, ended=bool(self._signal)),
                )

    def _end_children(self) -> None:
        """Jobs that still run save and end, as after a Ctrl-C of their own; a second signal ends
        them at once.
        """
        for child in self._children.values():
            child.terminate()
        while self._children:
            for child in self._children.values():
                child.join(PAUSE)
            self._collect()

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        def hear(number: int, frame: object) -> None:
            for child in self._children.values() if self._signal else ():
                child.kill()
            self._signal = number

        with hearing(hear):
            yield
