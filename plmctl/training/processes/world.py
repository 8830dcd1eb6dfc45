"""This process among those of its run, and the values that they exchange."""

from __future__ import annotations

import contextlib
import os
import platform
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist

from plmctl.core.errors import ConfigError, PlmctlError, UsageError
from plmctl.core.extras import describe_versions
from plmctl.training.processes.watch import MARGIN, find_missing, waiting

ALONE = 1.0  # seconds in which the process that failed first can report why
TIMEOUT = 1800.0  # seconds, the number of gloo itself
START = timedelta(days=7)  # in which the main process prepares the data
READY = "plmctl/ready"  # in the store of the processes, once the main one is there
CLOCKS = 5.0  # seconds by which the clocks of two machines may differ
NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class World:
    """This process among `size` equal ones. In this class it is the only one, so every sum is the
    value itself.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def all(self) -> World:
        """Every process of the run; those of a team are one in this world, and several there."""
        return self

    @property
    def alone(self) -> bool:
        """Whether no other process has rows of the same update."""
        return self.size == 1

    @property
    def main(self) -> bool:
        """The one process that writes files and prints."""
        return self.rank == 0

    @property
    def leads(self) -> bool:
        """Whether this process is the first one with its rows."""
        return True

    @property
    def group(self) -> Any:
        """The processes of this world for a collective of torch; None: all of the run."""
        return None

    def sum_counts(
        self, counts: Mapping[str, int], also: Mapping[str, int] = NOTHING
    ) -> dict[str, int]:
        """Sums by name of host integers.

        Args:
            counts: Numbers of rows, which count once in a team.
            also: Numbers that every process of the run has of its own.
        """
        return {**counts, **also}

    def gather(self, value: Any) -> list[Any]:
        """The value of every process, by rank; on the main one only, elsewhere an empty list."""
        return [value]

    def exchange(self, value: Any) -> list[Any]:
        """The picklable value of every process, by rank, on each of them."""
        return [value]

    def broadcast(self, value: Any) -> Any:
        """The main process's picklable `value` on every process."""
        return value

    def barrier(self) -> None:
        """Wait until every process is here."""


class Group(World):
    """One process of several that `join` brought together; it talks to them by
    `torch.distributed`.
    """

    def sum_counts(
        self, counts: Mapping[str, int], also: Mapping[str, int] = NOTHING
    ) -> dict[str, int]:
        """Sum in one all-reduce that never waits for the accelerator.

        Raises:
            PlmctlError: if the names of two processes differ.
        """
        counts = {**counts, **also}
        names = sorted(counts)
        check = zlib.crc32("\n".join(names).encode())
        vector = torch.tensor([check, *(counts[name] for name in names)], dtype=torch.int64)
        with explain_loss_of_process():
            dist.all_reduce(vector)
        total, *values = vector.tolist()
        if total != check * self.size:
            raise PlmctlError(
                "the processes disagree about what this update counts;"
                f" process {self.rank} has {', '.join(names)}"
            )
        return dict(zip(names, values, strict=True))

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.size
        with explain_loss_of_process():
            dist.gather_object(
                value, values if self.rank == 0 else None, group=self.group, group_dst=0
            )
        return values if self.main else []

    def exchange(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.size
        with explain_loss_of_process():
            dist.all_gather_object(values, value, group=self.group)
        return values

    def broadcast(self, value: Any) -> Any:
        box = [value]
        with explain_loss_of_process():
            dist.broadcast_object_list(box, 0)
        return box[0]

    def barrier(self) -> None:
        with explain_loss_of_process():
            dist.barrier()


@dataclass(frozen=True)
class Teams(Group):
    """One process of a team of neighbours, which have the same rows and compute parts of the same
    cells. `rank` and `size` count teams.

    Args:
        everyone: Every process of the run.
        group: The processes with the same number in their teams.
    """

    everyone: World = field(default_factory=World)
    group: Any = None

    @property
    def all(self) -> World:
        return self.everyone

    @property
    def team_size(self) -> int:
        """The processes of a team."""
        return self.everyone.size // self.size

    @property
    def main(self) -> bool:
        return self.everyone.main

    @property
    def leads(self) -> bool:
        return self.everyone.rank % self.team_size == 0

    def sum_counts(
        self, counts: Mapping[str, int], also: Mapping[str, int] = NOTHING
    ) -> dict[str, int]:
        own = counts if self.leads else dict.fromkeys(counts, 0)
        return self.everyone.sum_counts(own, also)

    def broadcast(self, value: Any) -> Any:
        return self.everyone.broadcast(value)

    def barrier(self) -> None:
        self.everyone.barrier()


def form_teams(world: World, size: int) -> World:
    """The world in which neighbours of `size` processes are one; `world` itself for 1."""
    if size == 1:
        return world
    count = world.size // size
    # every process has to make all groups, in the same order
    groups = [dist.new_group([size * n + place for n in range(count)]) for place in range(size)]
    own = {"everyone": world, "group": groups[world.rank % size]}
    return Teams(world.rank // size, count, world.device, **own)


@contextlib.contextmanager
def explain_loss_of_process() -> Iterator[None]:
    """Report the loss of another process in one line, which names it; that process has reported
    the cause, if it could.
    """
    with waiting():
        try:
            yield
        except RuntimeError as error:  # both gloo and nccl raise it
            raise explain_loss(error) from error


def explain_loss(error: RuntimeError) -> PlmctlError:
    """The line for a collective that has failed."""
    time.sleep(ALONE)
    missing = find_missing() or f"another one has ended ({str(error).splitlines()[0]})"
    return PlmctlError(f"process {dist.get_rank()} ends: {missing}")


def is_loss(error: RuntimeError) -> bool:
    """Whether an error is one of gloo or nccl, not of the computation."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)


def environment() -> tuple[int, int, int]:
    """(rank, local rank, size) as torchrun or `launch` set them; (0, 0, 1) without. Needs no
    process group.
    """
    return tuple(
        int(os.environ.get(name, default))
        for name, default in (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1))
    )  # type: ignore[return-value]


def device_of(name: str = "auto", setting: str = "train.device") -> torch.device:
    """The device of this process: `auto` is one GPU for each process if there are any, else the
    CPU.

    Raises:
        ConfigError: if it does not exist.
    """
    _, local, size = environment()
    kind = name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if kind.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(setting, name, "this torch sees no GPU", fix=f"{setting}=cpu")
    device = torch.device("cuda", local) if kind == "cuda" else torch.device(kind)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            "train.processes", size, f"at most {torch.cuda.device_count()}, the number of GPUs"
        )
    return device


def join(device: str = "auto", *, timeout: float = TIMEOUT) -> World:
    """Join the processes that the environment describes, on `device_of(device)`.

    The others wait as long as the main process needs to prepare the data; `timeout` is for all
    that comes later.

    Args:
        timeout: The seconds that a process waits for the others.
    """
    rank, _, size = environment()
    own_device = device_of(device)
    if own_device.type == "cuda":
        torch.cuda.set_device(own_device)
    if size == 1:
        return World(rank, size, own_device)
    if not dist.is_initialized():
        store, _, _ = next(dist.rendezvous("env://", timeout=START))
        if rank == 0:
            store.set(READY, "1")
        store.wait([READY], START)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if own_device.type == "cuda" else "gloo",
            store=dist.PrefixStore("plmctl", store),
            rank=rank,
            world_size=size,
            # an accelerator's own watch would end the process before ours has named another one
            timeout=timedelta(seconds=timeout + 2 * MARGIN * (own_device.type == "cuda")),
        )
    return Group(rank, size, own_device)


def check_alike(world: World, say: Callable[[str], None]) -> None:
    """Compare software and clocks of all processes, before they work together.

    Raises:
        UsageError: Two of them have other versions of plmctl, torch or Python.
    """
    own = (describe_versions(), platform.node(), time.time())
    ranks = world.exchange(own)
    first, host, now = ranks[0]
    for rank, (versions, other, _) in enumerate(ranks):
        if versions != first:
            raise UsageError(
                f"the processes run different software: process 0 on {host} has {first}, process"
                f" {rank} on {other} has {versions}\n  fix: the same environment on all machines"
            )
    rank, (_, other, clock) = max(enumerate(ranks), key=lambda each: abs(each[1][2] - now))
    if abs(clock - now) > CLOCKS:
        ahead = "ahead of" if clock > now else "behind"
        say(
            f"the clock of process {rank} on {other} is {abs(clock - now):.0f} s {ahead} that of"
            f" process 0 on {host}: times of files will mislead; the run counts by process 0"
        )


def leave() -> None:
    """Leave the process group, if there is one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
