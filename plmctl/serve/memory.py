"""The memory of a server, which runs for months over rows of ever new sizes."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# kernels that oneDNN keeps, each for one size, instead of 1,024: a server seldom sees a size twice
# https://uxlfoundation.github.io/oneDNN/dev_guide_primitive_cache.html
KERNELS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}
SECONDS = 10.0  # between two returns: the pages are needed again, which takes milliseconds


def keep_few_kernels() -> None:
    """Bound the kernels of oneDNN, unless the environment says how many; before the first model."""
    os.environ.update({name: os.environ.get(name, count) for name, count in KERNELS.items()})


@contextmanager
def return_pages(every: float = SECONDS) -> Iterator[None]:
    """Meanwhile, give free memory back to the system again and again.

    The allocator of glibc keeps the pages between blocks that are in use. Rows of ever new sizes
    leave ever more of them.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    end = threading.Event()

    def work() -> None:
        while trim is not None and not end.wait(every):
            trim(0)

    thread = threading.Thread(target=work, name="pages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
