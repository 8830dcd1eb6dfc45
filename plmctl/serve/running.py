"""A server as a process: it begins to listen, answers, and ends with its last request."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn

from plmctl.serve.memory import return_pages


def run(app: Any, listening: socket.socket, *, grace: int) -> None:
    """Answer requests until SIGINT or SIGTERM, then the rest of them.

    Args:
        app: The application.
        listening: The socket.
        grace: Seconds that running requests have.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=grace,
        timeout_keep_alive=30,
    )
    with return_pages():
        uvicorn.Server(config).run(sockets=[listening])
