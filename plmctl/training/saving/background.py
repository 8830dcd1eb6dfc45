"""Saves while training goes on: in a process of its own, or in a thread where none can be had.

    training    step | stage, send | step | step: is it done? | ... | stage, send
    process            write, sync, hash, rename   -> answer

A process shares no lock of the interpreter with training. It gets the blocks by memory that both
have mapped, so the copy is all that training waits for.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from plmctl.core.children import child_environment, describe_end
from plmctl.core.errors import PlmctlError
from plmctl.storage.parts.blocks import TensorBlock
from plmctl.training.saving.staging import Staged, Staging

WORKER = "plmctl.training.saving.worker"
PATIENCE = 20.0  # seconds that it has to end


@dataclass(frozen=True)
class SaveOrder:
    """A save, but for the numbers."""

    folder: Path  # checkpoints/ of the run
    partial: Path  # the folder that becomes the checkpoint
    step: int
    best_step: int | None
    keep_last: int
    stem: str = "step"  # begins the names of the folders
    every: int | None = None  # as of `Checkpoints`
    staged: Mapping[str, Staged] | None = None
    size: int = 0  # bytes of the memory in which they are


Run = Callable[[SaveOrder, Mapping[str, TensorBlock]], None]


class Background(Protocol):
    """Where a save runs; one at a time."""

    @property
    def busy(self) -> bool:
        """Whether a save has begun whose end was not reported."""

    def start(self, order: SaveOrder, blocks: Mapping[str, TensorBlock]) -> None:
        """Begin a save; the tensors may change when it returns."""

    def poll(self, *, wait: float = 0.0) -> str | None:
        """How the save has ended: "" for well, else why not; None while it runs or without one.

        Args:
            wait: The seconds to wait for its end.
        """

    def close(self) -> None:
        """End what runs here."""


class InThread:
    """A thread for each save.

    Args:
        run: The save itself.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._staging = run, Staging(shared=False)
        self._thread: threading.Thread | None = None
        self._end = ""

    def start(self, order: SaveOrder, blocks: Mapping[str, TensorBlock]) -> None:
        staged = self._staging.stage(blocks)
        memory = self._staging.memory
        assert memory is not None
        copies = {name: each.find(memory) for name, each in staged.items()}
        self._thread = threading.Thread(target=self._save, args=(order, copies), daemon=True)
        self._thread.start()

    def _save(self, order: SaveOrder, blocks: Mapping[str, TensorBlock]) -> None:
        try:
            self._run(order, blocks)
            self._end = ""
        except PlmctlError as error:
            self._end = str(error)

    @property
    def busy(self) -> bool:
        """Whether a save has begun whose end was not reported."""
        return self._thread is not None

    def poll(self, *, wait: float = 0.0) -> str | None:
        if self._thread is None:
            return None
        self._thread.join(wait)
        if self._thread.is_alive():
            return None
        self._thread = None
        return self._end

    def close(self) -> None:
        self._staging.close()


@dataclass(frozen=True)
class Meeting:
    """Where the processes that save find each other: an open port of the first one, 0 for one
    process alone.
    """

    host: str
    port: int
    rank: int
    size: int
    listening: int = -1  # the open file of the port


class InProcess:
    """A process for all saves of this one; it and those of other ranks are a group of their own.

    Raises:
        OSError: No process, or no memory that two processes share, can be had.
    """

    def __init__(self, meeting: Meeting) -> None:
        if not hasattr(os, "memfd_create"):
            raise OSError("this system has no memfd_create")
        self._staging = Staging(shared=True)
        self.busy = False
        own, other = socket.socketpair()
        shared = [self._staging.file, other.fileno()]
        shared += [meeting.listening] if meeting.listening >= 0 else []
        numbers = (meeting.port, meeting.rank, meeting.size, meeting.listening)
        words = [*map(str, shared[:2]), meeting.host, *map(str, numbers)]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", WORKER, *words],
                env={**os.environ, **child_environment(), "CUDA_VISIBLE_DEVICES": ""},
                pass_fds=shared,
                start_new_session=True,  # a Ctrl-C at the terminal is not for it
            )
        except OSError:
            self._staging.close()
            own.close()
            raise
        finally:
            other.close()
        self._connection = Connection(own.detach())

    def start(self, order: SaveOrder, blocks: Mapping[str, TensorBlock]) -> None:
        staged = self._staging.stage(blocks)
        memory = self._staging.memory
        assert memory is not None
        self.busy = True
        with contextlib.suppress(OSError):  # it has ended, which `poll` reports
            self._connection.send(replace(order, staged=staged, size=len(memory)))

    def poll(self, *, wait: float = 0.0) -> str | None:
        if not self.busy or not self._connection.poll(wait):
            return None
        self.busy = False
        try:
            return str(self._connection.recv())
        except (EOFError, OSError, pickle.UnpicklingError):
            return f"the process that writes it {describe_end(self._process.wait())}"

    def close(self) -> None:
        self._connection.close()  # on which it ends
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._staging.close()


def open_port() -> tuple[int, Any]:
    """A free port: (its number, the socket that listens)."""
    listener = socket.socket()
    listener.bind(("", 0))
    listener.listen(128)
    return listener.getsockname()[1], listener
