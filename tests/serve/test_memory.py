"""The memory of a server: few kernels, and free pages that go back."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plmctl.serve.memory import return_pages

GLIBC = hasattr(ctypes.CDLL(None), "malloc_trim")
PROGRAM = """
import ctypes, resource
from plmctl.serve.memory import keep_few_kernels
{first}
import torch

class Heap(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Heap
torch.set_num_threads(1)
for size in range(400):
    torch.nn.functional.gelu(torch.ones(20 + size, 64))
    if size == 99:
        before = libc.mallinfo2().uordblks
print(libc.mallinfo2().uordblks - before)
"""


def grow(first: str) -> int:
    """Bytes in use that 300 more sizes add."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ONEDNN")}
    program = PROGRAM.format(first=first)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow  # a matter of many sizes
@pytest.mark.skipif(not GLIBC, reason="counts blocks of glibc")
def test_kernels_of_ever_new_sizes_do_not_pile_up() -> None:
    assert grow("keep_few_kernels()") < 0.2 * grow("")


@pytest.mark.skipif(not GLIBC, reason="other allocators keep no pages")
def test_free_pages_between_blocks_go_back() -> None:
    blocks = [bytes(100_000) for _ in range(600)]  # below the size that has pages of its own
    full = read_memory()
    kept = blocks[9::10]  # the last one too, so that free pages lie between blocks, not above
    del blocks
    assert read_memory() > full - (10 << 20)
    with return_pages(every=0.01):
        for _ in range(100):
            if read_memory() < full - (30 << 20):
                break
            time.sleep(0.02)
    assert read_memory() < full - (30 << 20)
    assert len(kept) == 60


def read_memory() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
