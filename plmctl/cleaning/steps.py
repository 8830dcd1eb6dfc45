"""Restartable steps, whose tasks run in any number of processes.

A task leaves a mark when all that it writes is on the disk. Started again, only tasks without a
mark run.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from plmctl.core.children import follow_maker
from plmctl.core.errors import PlmctlError
from plmctl.core.progress import Say
from plmctl.storage.atomic import open_atomic
from plmctl.storage.durable import settle
from plmctl.storage.gate import admit, own
from plmctl.storage.journal import Journal
from plmctl.storage.reading import read_json

Task = TypeVar("Task")
Work = Callable[[Task, Path], dict[str, Any]]


@dataclass(frozen=True)
class Steps:
    """The steps of one job.

    Args:
        journal: The journal of the job, in whose folder the steps keep their files.
        processes: The number of processes; it changes nothing but the time.
        say: Receives the progress.
    """

    journal: Journal
    processes: int
    say: Say

    def folder(self, step: str) -> Path:
        """The folder of the files of a step."""
        folder = own(self.journal.scratch / step, ours=True)
        admit(folder).mkdir(exist_ok=True)
        return folder

    def prepare(self, name: str) -> Path:
        """A folder inside of the folder that is written."""
        folder = self.journal.folder / name
        admit(folder).mkdir(exist_ok=True)
        return folder

    def run(
        self, step: str, tasks: Sequence[Task], work: Work[Task], *, sizes: Sequence[int]
    ) -> list[dict[str, Any]]:
        """The result of `work(task, folder of the step)` for each task, from now or before a kill.

        Args:
            step: The name of the step.
            tasks: The tasks, which are independent of each other.
            work: The work; it returns values that JSON can spell.
            sizes: The bytes of each task, for the progress.
        """
        folder = self.folder(step)
        marks = [folder / f"{number:05}.json" for number in range(len(tasks))]
        left = [number for number, mark in enumerate(marks) if not mark.exists()]
        if not self.journal.state:
            self.journal.commit(begun=True)  # from now on a stop keeps the folder
        total, done = sum(sizes[number] for number in left), 0
        call = _Marked(work, folder)
        for number in self._perform([(n, tasks[n], marks[n]) for n in left], call):
            done += sizes[number]
            self.say(step, done, total)
        return [read_json(mark) for mark in marks]

    def _perform(self, todo: list[Any], call: _Marked) -> Any:
        """Do all of it in any order; yields the number of each task that is done."""
        if self.processes < 2 or len(todo) < 2:
            yield from map(call, todo)
            return
        method = "fork" if sys.platform == "linux" else "spawn"
        context = multiprocessing.get_context(method)
        workers = min(self.processes, len(todo))
        pool = ProcessPoolExecutor(workers, context, _prepare, (call,))
        try:
            futures: list[Future[int]] = [pool.submit(_call, each) for each in todo]
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            message = "a process was killed (out of memory?)\n  fix: processes=1"
            raise PlmctlError(f"{message}; finished parts are kept") from error
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Marked:
    """A task's work, and behind it the mark that it is done."""

    work: Any
    folder: Path

    def __call__(self, todo: tuple[int, Any, Path]) -> int:
        number, task, mark = todo
        result = self.work(task, self.folder)
        with open_atomic(mark) as stream:
            json.dump(result, stream, ensure_ascii=False)
            settle(stream)
        return number


_called: _Marked | None = None


def _prepare(call: _Marked) -> None:
    global _called
    follow_maker(patience=0)  # a pool whose maker was killed would wait for work for ever
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides
    own(call.folder, ours=True)
    _called = call


def _call(todo: tuple[int, Any, Path]) -> int:
    assert _called is not None
    return _called(todo)


def save_array(file: Path, array: np.ndarray) -> None:
    """Write an array as a .npy file, which is on the disk when it has its name."""
    with open_atomic(file, "wb") as stream:
        np.lib.format.write_array(stream, array, allow_pickle=False)
        settle(stream)


def map_array(file: Path) -> np.ndarray:
    """The array of a .npy file, mapped into memory; an empty one is read."""
    array: np.ndarray = np.load(file, mmap_mode=None if file.stat().st_size < 256 else "r")
    return array
