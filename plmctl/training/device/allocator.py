"""The memory allocation of the C library, for training and scoring on CPU."""

from __future__ import annotations

import ctypes
import platform

import torch

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # numbers of options, <malloc.h>


def keep_freed_memory(device: torch.device) -> bool:
    """On a CPU, let malloc keep freed memory, and return whether it does; only glibc can.

    By default glibc gets large blocks from the system one by one and returns each when it is freed.
    In every batch the kernel then clears the pages of all activations again: 5 to 10% of the time
    of a small model.
    """
    if device.type != "cpu" or platform.libc_ver()[0] != "glibc":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, 2**31 - 1))
