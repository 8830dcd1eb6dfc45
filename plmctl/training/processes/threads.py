"""How many threads of the CPU each process of a run takes."""

from __future__ import annotations

import os

# whoever sets it (torchrun, `launch`, the user) decides the number of threads
THREADS = "OMP_NUM_THREADS"


def count_threads(wanted: int | None, processes: int) -> int:
    """The threads of each process: the number in the environment, else `wanted`, else an equal
    share of torch's threads.
    """
    import torch  # the job of a cluster reads THREADS alone

    if THREADS in os.environ:
        return torch.get_num_threads()
    return wanted or max(1, torch.get_num_threads() // processes)


def describe_busy() -> str:
    """A warning that other work uses most of this machine; empty if that is not so, or cannot be
    known.
    """
    processors = os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load < 1.5 * processors:
        return ""
    return f"this machine is busy (load {load:.0f} on {processors} processors): all takes longer"
