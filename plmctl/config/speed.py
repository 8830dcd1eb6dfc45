"""How fast this machine trains: measured once and kept, so that all runs see the same number."""

from __future__ import annotations

import math

from plmctl.config.groups import Train
from plmctl.training.device.peak import find_rate
from plmctl.training.device.precision import choose
from plmctl.training.processes.threads import count_threads
from plmctl.training.processes.world import device_of, environment


def estimate_rate(train: Train, cache_dir: str | None = None, width: float = math.inf) -> float:
    """The FLOP/s that a training with these settings reaches on this machine, over all its
    processes. It is the usual share of the rate of a matrix product, or of the peak of a known
    card.

    Args:
        train: device, precision, processes and threads.
        cache_dir: The folder of measured rates; None: the user's cache folder.
        width: The width of the model; by default one without bounds.

    Raises:
        ConfigError: There is no such device.
    """
    device = device_of(train.device)
    precision = choose(train.precision, device)
    processes = max(train.processes, environment()[2])
    threads = count_threads(train.threads, processes)
    return processes * find_rate(precision, width, threads, cache_dir)
