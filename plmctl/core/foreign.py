"""Code of other languages that takes minutes and does not hear Ctrl-C."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

NAME = "foreign code"  # name of its thread


def run_in_thread(work: Callable[..., None], **arguments: Any) -> None:
    """Run `work(**arguments)` in a thread, so that this one receives Ctrl-C at once; foreign code
    would delay it by minutes.
    """
    errors: list[Exception] = []

    def run() -> None:
        try:
            work(**arguments)
        except Exception as error:  # it crosses to the other thread and is raised there
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name=NAME)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    if errors:
        raise errors[0]


def end_beside_threads(code: object) -> None:
    """End the process with an exit code if foreign code still runs. The end of the interpreter
    would take its library down under it, and crash. Else do nothing.
    """
    if any(thread.name == NAME for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
