"""Large tables of numbers in files without a name, whose pages leave memory when they are done."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import tempfile
from typing import Any

import numpy as np

LARGE = 1 << 22  # bytes from which a table lies in a file
AT_ONCE = 1 << 16  # numbers of a table that are computed at once


def make_table(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """A table of zeros; a large one is a mapped file, which is gone with its last view.

    Its room on the disk is taken at once; a disk without it leaves the table in memory.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size >= LARGE and hasattr(os, "posix_fallocate"):
        with contextlib.suppress(OSError), tempfile.TemporaryFile() as stream:
            os.posix_fallocate(stream.fileno(), 0, size)  # else a full disk ends the process later
            return np.memmap(stream, dtype, "r+", shape=shape)
    return np.zeros(shape, dtype)


def count_at_once(table: np.ndarray) -> int:
    """How many rows of a table [n, K] are computed at once. It is a multiple of 64, so that vector
    instructions take the same numbers together as in the whole table.
    """
    return 64 * max(1, AT_ONCE // (64 * max(1, table.shape[1])))


def release(array: Any) -> None:
    """Let the pages of a mapped file leave memory; they are read from it when they are used."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
