"""The state that a command changes in its process is restored behind it: a notebook goes on as it
was.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def keep_state() -> Iterator[io.StringIO]:
    """Put back torch's threads and flags, all random generators and the environment; what a command
    prints as its result is kept, and not printed.
    """
    environment = dict(os.environ)
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    python, numpy = random.getstate(), np.random.get_state()
    with (
        torch.random.fork_rng(devices=devices),
        contextlib.redirect_stdout(io.StringIO()) as printed,
    ):
        try:
            yield printed
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(strict, warn_only=warn_only)
            _restore(environment)


def _restore(environment: dict[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
