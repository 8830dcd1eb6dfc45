"""The memory of a process that answers, in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from plmctl.artifacts.deployed import open_deployed
from plmctl.artifacts.loading import load
from plmctl.core.batch import Batch
from plmctl.core.errors import UsageError
from plmctl.core.machine import measure_memory, measure_peak_memory
from plmctl.runtime.base import Answer, Program
from plmctl.runtime.signature import Signature
from plmctl.runtime.stored import LIBRARIES
from plmctl.use.deploying import open_graph_task

Open = Callable[[], Answer]  # opens a model, all of whose libraries are imported


def measure_growth(opening: Callable[[], Open], batches: Sequence[Batch]) -> int:
    """The bytes that a new process needs at most to open a model and to answer, libraries aside.

    Args:
        opening: Imports the libraries, in the new process.
        batches: The rows to answer.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    threads = torch.get_num_threads()
    child = context.Process(target=_grow, args=(theirs, opening, [*batches], threads))
    child.start()
    theirs.close()
    try:
        grown: int = ours.recv()
    except EOFError:
        raise UsageError("its memory cannot be measured: the process has ended") from None
    finally:
        child.join()
    return grown


def _grow(
    pipe: Connection, opening: Callable[[], Open], batches: Sequence[Batch], threads: int
) -> None:
    torch.set_num_threads(threads)
    prepare = opening()
    before = measure_memory()
    answer = prepare()
    for batch in batches:
        answer(batch)
    pipe.send(max(0, measure_peak_memory() - before))


def open_run(checkpoint: str, plugins: Sequence[str]) -> Open:
    """Open a run in PyTorch."""

    def prepare() -> Answer:
        loaded = load(checkpoint, plugins=plugins)
        task = open_graph_task(loaded, Path(checkpoint))
        return Program(loaded.model, task.logits)

    return prepare


def open_file(library: str, folder: Path, signature: Signature, *, int8: bool) -> Open:
    """Open a file in its library."""
    computing = LIBRARIES[library](int8=int8)
    computing.describe()  # imports it
    return lambda: computing.load(folder, signature)


def open_exported(folder: Path, plugins: Sequence[str]) -> Open:
    """Open an exported folder in its library, which reads the file for the first answer."""
    loaded = open_deployed(folder, plugins=plugins)
    task, runtime = open_graph_task(loaded, folder), loaded.runtime
    assert runtime is not None
    runtime.describe()  # imports it
    return lambda: partial(runtime.answer, Program(loaded.model, task.logits))
