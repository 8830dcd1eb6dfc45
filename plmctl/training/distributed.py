"""Several processes as one: who this process is, sums over all of them, and how to start them on
one machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from plmctl.core import children as following
from plmctl.core.errors import ConfigError, PlmctlError
from plmctl.training.stop import ASKED, hearing

M = TypeVar("M", bound=nn.Module)

GRACE = 30.0  # seconds that the other processes get to end once one has failed
LAUNCHED = "PLMCTL_LAUNCHED"  # in the environment of a process that `launch` has started
ALONE = 1.0  # seconds in which the one that knows why it ends speaks first


@dataclass(frozen=True)
class World:
    """This process among `size` equal ones; with size 1 every sum is the value itself."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def main(self) -> bool:
        """The one process that writes files and prints."""
        return self.rank == 0

    def sum_counts(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Sums by name of host integers, in one all-reduce that never waits for the accelerator."""
        if self.size == 1:
            return dict(counts)
        names = sorted(counts)
        check = zlib.crc32("\n".join(names).encode())
        vector = torch.tensor([check, *(counts[name] for name in names)], dtype=torch.int64)
        with _reached():
            dist.all_reduce(vector)
        total, *values = vector.tolist()
        if total != check * self.size:
            raise PlmctlError(
                "the processes disagree about what this update counts;"
                f" process {self.rank} has {', '.join(names)}"
            )
        return dict(zip(names, values, strict=True))

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum gradients over ranks as one flat vector; a parameter that no rank used keeps none."""
        if self.size == 1:
            return
        used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8)
        with _reached():
            dist.all_reduce(used, op=dist.ReduceOp.MAX)
        live = [p for p, flag in zip(parameters, used.tolist(), strict=True) if flag]
        if live:
            flat = torch.cat(
                [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in live]
            )
            with _reached():
                dist.all_reduce(flat)
            for p, part in zip(live, flat.split([p.numel() for p in live]), strict=True):
                p.grad = part.view_as(p)

    def gather(self, value: Any) -> list[Any]:
        """The value of every rank, by rank; on the main process only, elsewhere an empty list."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        with _reached():
            dist.gather_object(value, found if self.main else None)
        return found if self.main else []

    def barrier(self) -> None:
        if self.size > 1:
            with _reached():
                dist.barrier()


@contextlib.contextmanager
def _reached() -> Iterator[None]:
    """What a library says of a process that is gone, as one line: the one that went has said
    why.
    """
    try:
        yield
    except RuntimeError as error:  # of gloo and of nccl alike
        time.sleep(ALONE)
        reason = str(error).splitlines()[0]
        raise PlmctlError(
            f"process {dist.get_rank()} ends, because another one has ended ({reason})"
        ) from error


def environment() -> tuple[int, int, int]:
    """(rank, local rank, size) as torchrun or `launch` set them; (0, 0, 1) without. Needs no
    process group.
    """
    return tuple(
        int(os.environ.get(name, default))
        for name, default in (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1))
    )  # type: ignore[return-value]


def device_of(name: str = "auto", setting: str = "train.device") -> torch.device:
    """The device of this process: `auto` is a GPU each if there are any, else the CPU;
    ConfigError if it is not there.
    """
    _, local, size = environment()
    kind = name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if kind.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(setting, name, "this torch sees no GPU", fix=f"{setting}=cpu")
    place = torch.device("cuda", local) if kind == "cuda" else torch.device(kind)
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            "train.processes", size, f"at most {torch.cuda.device_count()}, the number of GPUs"
        )
    return place


def join(device: str = "auto") -> World:
    """Join the process group that the environment describes, on `device_of(device)`."""
    rank, _, size = environment()
    place = device_of(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if size > 1 and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo")
    return World(rank, size, place)


def leave() -> None:
    """Leave the process group, if there is one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def distribute(model: M, world: World) -> M:
    """Place a model on this process's device with rank 0's weights. Data-parallel: every rank holds
    all of it.

    Sharded training begins here: `fully_shard` each block and the model, before the optimizer is
    built.
    """
    model.to(world.device)
    if world.size > 1:
        with torch.no_grad(), _reached():
            for tensor in [*model.parameters(), *model.buffers()]:
                dist.broadcast(tensor, 0)
    return model


def launch(
    processes: int,
    argv: Sequence[str],
    *,
    module: str = "plmctl",
    given: Mapping[str, int] | None = None,
) -> int:
    """Run `python -m module argv` in `processes` processes on this machine, as torchrun would, and
    return their exit code.

    The first signal is passed on, so that Ctrl-C saves; the second ends them all at once, also one
    that hears nothing. The first failure ends the others, and they end with this process. `given`:
    open files that they share, by the name of the environment that tells the number of each.
    """
    given = given or {}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # the caller has set a process' share
    threads = os.environ.get("OMP_NUM_THREADS") or str(torch.get_num_threads())
    shared = {
        **os.environ,
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": threads,
        LAUNCHED: "1",
        **following.started_here(),
        **{name: str(number) for name, number in given.items()},
    }
    children = [
        subprocess.Popen(  # its own session: a Ctrl-C at the terminal reaches it once, through us
            [sys.executable, "-m", module, *argv],
            env={**shared, "RANK": str(i), "LOCAL_RANK": str(i)},
            start_new_session=True,
            pass_fds=tuple(given.values()),
        )
        for i in range(processes)
    ]

    heard: list[int] = []

    def forward(number: int, frame: object) -> None:
        heard.append(number)
        for child in children:
            if child.poll() is None:
                child.send_signal(number if len(heard) == 1 else signal.SIGKILL)
        if len(heard) == 1:
            os.write(2, ASKED)

    with hearing(forward):
        try:
            code = _wait(children)
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
    return 128 + heard[-1] if len(heard) > 1 else code


def launched() -> bool:
    """Whether `launch` has started this process: the one that did passes signals on, and says
    so.
    """
    return LAUNCHED in os.environ


def _wait(children: Sequence[subprocess.Popen]) -> int:
    """The first non-zero exit code, or 0 when all have ended well."""
    failed: tuple[int, float] | None = None
    while any(child.poll() is None for child in children):
        code = next((child.returncode for child in children if child.poll()), 0)
        if code and failed is None:
            failed = (code, time.monotonic())
        if failed and time.monotonic() - failed[1] > GRACE:
            break
        time.sleep(0.05)
    code = (
        failed[0]
        if failed
        else next((child.returncode for child in children if child.returncode), 0)
    )
    return code if code >= 0 else 128 - code


def broadcast(value: Any, world: World) -> Any:
    """Rank 0's picklable `value` on every rank (the name of the run directory, say)."""
    if world.size == 1:
        return value
    box = [value]
    with _reached():
        dist.broadcast_object_list(box, 0)
    return box[0]


def sum_floats(values: Mapping[str, float], world: World) -> dict[str, float]:
    """Sums by name over ranks, on every rank; names may differ between ranks."""
    if world.size == 1:
        return dict(values)
    found: list[Any] = [None] * world.size
    with _reached():
        dist.all_gather_object(found, dict(values))
    total: dict[str, float] = {}
    for part in found:
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total
