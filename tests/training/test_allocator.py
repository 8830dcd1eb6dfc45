"""The allocator setting: freed memory is used again without asking the kernel for fresh pages."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROBE = """
import ctypes, resource, sys, torch
from plmctl.training.device.allocator import keep_freed_memory
if sys.argv[1] == "on":
    assert keep_freed_memory(torch.device("cpu"))
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    before = faults()
    block = libc.malloc(64 << 20)
    ctypes.memset(block, 1, 64 << 20)
    libc.free(block)
print(faults() - before)
"""


def _faults(setting: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, setting], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")
def test_large_blocks_reuse_the_pages_of_freed_ones() -> None:
    kept, fresh = _faults("on"), _faults("off")
    assert kept < max(20, fresh / 10)  # a system with huge pages faults seldom by itself
