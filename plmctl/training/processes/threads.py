"""How many threads of the CPU each process of a run takes."""

from __future__ import annotations

import os

import torch

# whoever sets it (torchrun, `launch`, the user) decides the number of threads
THREADS = "OMP_NUM_THREADS"


def count_threads(wanted: int | None, processes: int) -> int:
    """The threads of each process: what the environment says, else `wanted`, else an equal share
    of those that torch takes.
    """
    if THREADS in os.environ:
        return torch.get_num_threads()
    return wanted or max(1, torch.get_num_threads() // processes)
