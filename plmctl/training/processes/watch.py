"""Signs of life of the processes of a run, by which a lost or stuck one is named.

RUN/.ranks/<rank>.json   written by each process every second: the update, and what it does there
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from plmctl.core.errors import list_problems
from plmctl.core.terminal import FAIL, remark
from plmctl.storage.gate import admit, open_file
from plmctl.storage.reading import parse_json

RANKS = ".ranks"  # in the folder of a run
BEAT = 1.0  # seconds between two signs of life
SILENT = 3.5  # seconds without one, after which a process counts as lost
MARGIN = 10.0  # seconds in which a collective can raise by itself, which ends a run in order
LONG = ("validates", "saves")  # phases that may take longer than `train.timeout`

_watch: Watch | None = None  # the watch in this process


class Watch:
    """Writes the signs of life of this process, and reads those of the others.

    Args:
        folder: The folder of the run, which all processes see.
        rank: The number of this process.
        size: The number of processes.
        timeout: The seconds that a process may wait for the others; then the watch names the
            missing one, and ends this process.
    """

    def __init__(self, folder: Path, *, rank: int, size: int, timeout: float) -> None:
        self.folder, self.rank, self.size, self.timeout = folder / RANKS, rank, size, timeout
        self._state = {"step": 0, "phase": "begins", "host": platform.node(), "pid": os.getpid()}
        self._since = time.monotonic()
        self._waits = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plmctl-watch", daemon=True)

    def __enter__(self) -> Watch:
        admit(self.folder).mkdir(exist_ok=True)
        for file in self.folder.glob("*.json") if self.rank == 0 else ():
            # an earlier start had more processes
            if file.stem.isdecimal() and int(file.stem) >= self.size:
                admit(file).unlink(missing_ok=True)
        self.beat()
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end.set()
        self._thread.join()
        if error is not None:  # the others read why they are alone
            self.mark(f"has failed: {list_problems(error) if str(error) else kind}")
            self.beat()
            return
        with contextlib.suppress(OSError):
            admit(self._file(self.rank)).unlink()
            admit(self.folder).rmdir()

    def mark(self, phase: str, step: int | None = None) -> None:
        """Say what this process does from now on, and after how many updates."""
        self._state = {**self._state, "phase": phase, **({} if step is None else {"step": step})}
        self._since = time.monotonic()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark that this process waits for the others."""
        if not self._waits:
            self._since = time.monotonic()
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            self._since = time.monotonic()

    def beat(self) -> None:
        """Write a sign of life."""
        seconds = round(time.monotonic() - self._since, 3)
        state = {**self._state, "waits": bool(self._waits), "seconds": seconds, "time": time.time()}
        file = self._file(self.rank)
        partial = file.with_suffix(".partial")
        with open_file(partial, "w") as out:
            json.dump(state, out)
        os.replace(admit(partial), admit(file))

    def find_missing(self, *, patience: float = SILENT + BEAT) -> str:
        """The other processes that are lost, have failed, or do not wait as this one does; "" if
        `patience` seconds show none.
        """
        end = time.monotonic() + patience
        while True:
            with contextlib.suppress(OSError):
                self.beat()  # its time is that of the disk, whatever the clocks of machines say
            others = [rank for rank in range(self.size) if rank != self.rank]
            judged = [self._judge(rank) for rank in others]
            lost = [text for text, gone in judged if gone]
            if lost or time.monotonic() > end:
                return "; ".join(lost or [text for text, _ in judged if text])
            time.sleep(BEAT / 5)

    def _judge(self, rank: int) -> tuple[str, bool]:
        """(the trouble with a process, whether it is gone); "" where it waits for others."""
        file = self._file(rank)
        try:
            state = parse_json(file.read_text(encoding="utf-8"))
            age = self._file(self.rank).stat().st_mtime - file.stat().st_mtime
        except (OSError, ValueError):
            return f"process {rank} has left no sign of life", True
        phase, after = state["phase"], f"after update {state['step']}"
        who = f"process {rank} on {state['host']}"
        if phase.startswith("has failed"):
            return f"{who} {phase} ({after})", True
        if state["host"] == platform.node() and not _lives(state["pid"]):
            return f"{who} has ended (it {phase}, {after})", True
        if age > SILENT:
            return f"{who} has given no sign of life for {age:.0f} s (it {phase}, {after})", True
        if state["waits"]:
            return "", False
        return f"{who} {phase} for {state['seconds']:.0f} s ({after})", False

    def _run(self) -> None:
        while not self._end.wait(BEAT):
            with contextlib.suppress(OSError):  # a full disk ends no run here
                self.beat()
            over = self._waits and time.monotonic() - self._since > self.timeout + MARGIN
            if over and self._state["phase"] not in LONG and (why := self.find_missing()):
                remark(
                    f"plmctl: process {self.rank} has waited for {self.timeout:g} s: {why}", FAIL
                )
                os._exit(1)

    def _file(self, rank: int) -> Path:
        return self.folder / f"{rank}.json"


def _lives(pid: int) -> bool:
    """Whether a process of this machine runs; one that has ended may still be listed."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.joinpath("self").exists():
        try:
            return stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@contextlib.contextmanager
def watching(folder: Path, *, rank: int, size: int, timeout: float) -> Iterator[None]:
    """Watch the processes of a run while it is entered; one process alone needs no watch."""
    global _watch
    if size == 1:
        yield
        return
    with Watch(folder, rank=rank, size=size, timeout=timeout) as _watch:
        try:
            yield
        finally:
            _watch = None


def mark(phase: str, step: int | None = None) -> None:
    """Say what this process does from now on, where it is watched."""
    if _watch is not None:
        _watch.mark(phase, step)


def waiting() -> contextlib.AbstractContextManager[None]:
    """Mark that this process waits for the others, where it is watched."""
    return contextlib.nullcontext() if _watch is None else _watch.waiting()


def find_missing() -> str:
    """The processes for which this one waits in vain; "" where it is not watched."""
    return "" if _watch is None else _watch.find_missing()
