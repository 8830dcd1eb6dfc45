"""The port at which processes meet. Its owner opens it, and hands it over as an open file.

A port that is only looked for is anybody's until the first process binds it.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

DOOR = "PLMCTL_DOOR"  # in the environment of the first process: the number of the open file


def open_port(address: str = "") -> tuple[int, socket.socket]:
    """A free port: (its number, the socket that listens)."""
    listener = socket.socket()
    listener.bind((address, 0))
    listener.listen(128)
    return listener.getsockname()[1], listener


def host_store(host: str, port: int, size: int, door: int, timeout: timedelta) -> Any:
    """The store of `size` processes, whose first one, this one, listens by the open file `door`."""
    import torch.distributed as dist

    return dist.TCPStore(host, port, size, is_master=True, timeout=timeout, master_listen_fd=door)
