"""The process that writes the checkpoints of one process of a run, started by `InProcess`.

It ends when the run does; signals to save and end are for the run, which waits for it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import sys
from collections.abc import Mapping
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from plmctl.core.children import follow_starter
from plmctl.core.errors import PlmctlError
from plmctl.storage.parts.blocks import TensorBlock
from plmctl.storage.parts.writing import Savers
from plmctl.training.processes.world import is_loss, leave
from plmctl.training.saving.background import SaveOrder
from plmctl.training.saving.saves import LONGEST, save_order
from plmctl.training.stop import SIGNALS

MINUTES = 10  # to find the others
NICE = 5  # training goes first where both want a core


def main(file: int, connection: int, host: str, port: int, rank: int, size: int, door: int) -> None:
    """Do one order after the other, until the run has closed the connection."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    follow_starter(patience=0)
    orders = Connection(connection)
    try:
        savers = _meet(host, port, rank, size, door) if port else Savers()
        with contextlib.suppress(OSError):
            os.nice(NICE)
        while True:
            order: SaveOrder = orders.recv()
            orders.send(_save(order, file, savers))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        leave()


def _meet(host: str, port: int, rank: int, size: int, door: int) -> Savers:
    """Join the processes that save, whose first one listens at `port` by the open file `door`."""
    import torch.distributed as dist

    listening: dict[str, Any] = {"master_listen_fd": door} if rank == 0 else {}
    store = dist.TCPStore(
        host,
        port,
        size,
        rank == 0,
        timeout=timedelta(minutes=MINUTES),
        wait_for_workers=False,
        **listening,
    )
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=LONGEST)
    return Savers(dist.group.WORLD, rank=rank, size=size)


def _save(order: SaveOrder, file: int, savers: Savers) -> str:
    """Why it failed; "" if it did not."""
    memory = mmap.mmap(file, order.size)
    blocks: Mapping[str, TensorBlock] = {
        name: staged.find(memory) for name, staged in (order.staged or {}).items()
    }
    try:
        save_order(order, blocks, savers)
    except PlmctlError as error:
        return str(error)
    except RuntimeError as error:  # the run names the process that is lost
        if not is_loss(error):
            raise
        return "another process that saves has ended"
    return ""


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]), int(given[1]), given[2], *map(int, given[3:]))
