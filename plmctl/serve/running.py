"""A server as a process: it begins to listen, answers, and ends with its last request."""

from __future__ import annotations

import gc
import socket
from typing import Any

import uvicorn

from plmctl.serve.memory import return_pages
from plmctl.serve.wire import BoundedProtocol


def run(app: Any, listening: socket.socket, *, grace: int) -> None:
    """Answer requests until SIGINT or SIGTERM, then the rest of them.

    Args:
        app: The application.
        listening: The socket.
        grace: Seconds that running requests have.
    """
    gc.collect()
    gc.freeze()  # a search for garbage then passes over the models and the libraries
    with return_pages():
        uvicorn.Server(make_config(app, grace=grace)).run(sockets=[listening])


def make_config(app: Any, *, grace: int) -> uvicorn.Config:
    """The settings of a server; the arguments are those of `run`."""
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=grace,
        timeout_keep_alive=30,
    )
