"""The saves of a run, now or in the background. The main process writes whole files, or every
process writes its parts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

from plmctl.core.errors import PlmctlError
from plmctl.storage.gate import own
from plmctl.storage.parts.blocks import TensorBlock, own_blocks
from plmctl.storage.parts.kinds import KINDS, SHARDS
from plmctl.storage.parts.writing import FileEntry, Savers, save_blocks
from plmctl.training.checkpoint import Checkpoints, Snapshot, seal
from plmctl.training.processes.world import World
from plmctl.training.saving.background import (
    Background,
    InProcess,
    InThread,
    Meeting,
    SaveOrder,
    open_port,
)

LONGEST = timedelta(hours=6)  # for a save: some processes write more than others
FAILED = "save/failed"  # in the counts of an update
MOMENT = 0.5  # seconds between two questions to all processes whether their saves have ended


class Saves:
    """Saves checkpoints; of saves in the background one runs at a time.

    Args:
        checkpoints: The checkpoints of the run.
        world: All processes of it, which make the same calls.
        background: Save while training goes on.
    """

    def __init__(self, checkpoints: Checkpoints, world: World, *, background: bool = False) -> None:
        self.checkpoints, self.world, self.background = checkpoints, world, background
        self._place: Background | None = None
        self._order: SaveOrder | None = None  # the last save in the background
        self._problem = ""

    def __enter__(self) -> Saves:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Wait for the save that runs, and end its process."""
        try:
            if kind is None:
                self.wait()
        finally:
            if self._place is not None:
                self._place.close()
                self._place = None

    def save(self, snapshot: Snapshot, *, step: int, best_step: int | None) -> None:
        """Save a checkpoint; PlmctlError if it, or the one before, cannot be written."""
        self.wait()
        if snapshot.rows is None:
            if self.world.main:
                self.checkpoints.save(snapshot, step=step, best_step=best_step)
            self.world.barrier()
            return
        order = self._begin(snapshot, step, best_step)
        blocks = self._blocks(snapshot)
        if not self.background:
            self._save_now(order, blocks)
            return
        if self._place is None:
            self._place = self._find_place()
        self._order = order
        self._place.start(order, blocks)

    def _begin(self, snapshot: Snapshot, step: int, best_step: int | None) -> SaveOrder:
        """Make the folder, on the main process; an error there is one of all."""
        partial, problem = None, ""
        if self.world.main:
            try:
                partial = self.checkpoints.begin_shards(step, snapshot.trainer)
            except OSError as error:
                problem = error.strerror or str(error)
        partial, problem = self.world.broadcast((partial, problem))
        kept = self.checkpoints
        which = (kept.keep_last, kept.stem, kept.every)
        order = SaveOrder(kept.folder, partial, step, best_step, *which)
        if problem:
            raise self._explain(order, problem)
        return order

    def _blocks(self, snapshot: Snapshot) -> dict[str, TensorBlock]:
        """The blocks that this process saves, by kind and name."""
        assert snapshot.rows is not None
        base = self.checkpoints.base
        others = {f"model/{name}" for name in base["tensors"]} if base else set()
        shared = {
            f"{kind}/{name}": tensor
            for kind in KINDS[:-1]
            for name, tensor in getattr(snapshot, kind).items()
            if f"{kind}/{name}" not in others
        }
        alone = {f"random/{name}": tensor for name, tensor in snapshot.random.items()}
        blocks = own_blocks(shared, main=self.world.main, rows=snapshot.rows)
        return blocks | own_blocks(alone, main=True, rows={})

    def _save_now(self, order: SaveOrder, blocks: Mapping[str, TensorBlock]) -> None:
        try:
            save_order(order, blocks, self._savers)
        except PlmctlError as error:
            raise self._explain(order, str(error)) from error
        if self.world.main:
            self.checkpoints.note_saved(order.step)

    @cached_property
    def _savers(self) -> Savers:
        """The processes of the run, by a group for saves alone."""
        if self.world.alone:
            return Savers()
        import torch.distributed as dist

        group = dist.new_group(backend="gloo", timeout=LONGEST)
        return Savers(group, rank=self.world.rank, size=self.world.size)

    def _find_place(self) -> Background:
        """A process for the saves; a thread if one of the processes of the run gets none."""
        port, listener = open_port() if self.world.main and not self.world.alone else (0, None)
        port, problem = self.world.broadcast(port), ""
        process: InProcess | None = None
        meeting = Meeting(
            os.environ.get("MASTER_ADDR", "127.0.0.1"),
            port,
            self.world.rank,
            self.world.size,
            listener.fileno() if listener else -1,
        )
        try:
            process = InProcess(meeting)
        except OSError as error:
            problem = error.strerror or str(error)
        finally:
            if listener:
                listener.close()
        problems = [each for each in self.world.exchange(problem) if each]
        if process is not None and not problems:
            return process
        if process is not None:
            process.close()
        self.checkpoints.say(f"checkpoints are saved by a thread: no process ({problems[0]})")
        return InThread(partial(save_order, savers=self._savers))

    def counts(self) -> dict[str, int]:
        """Whether the save in the background has failed here, to be summed with the counts of an
        update; nothing without such saves.
        """
        if not self.background:
            return {}
        self._look()
        return {FAILED: int(bool(self._problem))}

    def agree(self, counts: Mapping[str, int]) -> None:
        """End every process of the run if a save has failed in one: PlmctlError."""
        if counts.get(FAILED):
            self._raise(self.world.exchange(self._problem))

    def wait(self) -> None:
        """Wait for the save that runs; PlmctlError if it failed in any process.

        All processes ask one another again and again: where the save of one has ended early, that
        of another may wait for it for hours.
        """
        busy = self.background
        while busy:
            self._look(wait=MOMENT)
            runs = self._place is not None and self._place.busy
            ends = self.world.exchange((runs, self._problem))
            self._raise([problem for _, problem in ends])
            busy = any(still for still, _ in ends)

    def _look(self, *, wait: float = 0.0) -> None:
        if self._place is None or self._order is None:
            return
        end = self._place.poll(wait=wait)
        if end:
            self._problem = end
        elif end is not None and self.world.main:
            self.checkpoints.note_saved(self._order.step)

    def _raise(self, problems: Sequence[str]) -> None:
        """PlmctlError with the first problem of those of all processes."""
        first = next(filter(None, problems), "")
        if first:
            assert self._order is not None
            raise self._explain(self._order, first)

    def _explain(self, order: SaveOrder, reason: str) -> PlmctlError:
        if self.world.main:
            return self.checkpoints.give_up(order.partial, order.step, reason)
        return PlmctlError(f"cannot save {self.checkpoints.path(order.step)}: {reason}")


def save_order(order: SaveOrder, blocks: Mapping[str, TensorBlock], savers: Savers) -> None:
    """Write the parts of a checkpoint and seal it, with all processes.

    Raises:
        PlmctlError: On every process, if one has failed.
    """
    own(order.folder.parent)
    which: Any = {"keep_last": order.keep_last, "stem": order.stem, "every": order.every}
    kept = Checkpoints(order.folder, **which)

    def finish(files: Mapping[str, FileEntry]) -> None:
        seal(order.partial, {f"{SHARDS}/{name}": entry for name, entry in files.items()})
        kept.finish(order.partial, order.step)
        kept.prune(order.best_step)

    save_blocks(blocks, order.partial / SHARDS, savers, finish)
