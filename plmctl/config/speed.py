"""How fast this machine trains: measured once and kept, so that all runs see the same number."""

from __future__ import annotations

import torch

from plmctl.config.groups import Train
from plmctl.core.machine import describe_cpu
from plmctl.storage.paths import find_cache_folder
from plmctl.storage.rates import keep
from plmctl.training.device.peak import find_card_peak, measure_rate, usual_share
from plmctl.training.device.precision import Precision, choose
from plmctl.training.processes.threads import count_threads
from plmctl.training.processes.world import device_of, environment

SECONDS = 0.3  # seconds of a measurement


def estimate_rate(train: Train, cache_dir: str | None = None) -> float:
    """The FLOP/s that a training with these settings reaches on this machine, over all its
    processes. It is the usual share of the rate of a matrix product, or of the peak of a known
    card.

    Args:
        train: device, precision, processes and threads.
        cache_dir: The folder of measured rates; None: the user's cache folder.

    Raises:
        ConfigError: There is no such device.
    """
    device = device_of(train.device)
    precision = choose(train.precision, device)
    processes = max(train.processes, environment()[2])
    threads = count_threads(train.threads, processes)
    return usual_share(device) * processes * _find_peak(precision, threads, cache_dir)


def name_machine(precision: Precision, threads: int) -> str:
    """All that decides the rate of a machine: "<processor>, 2 threads, fp32"."""
    if precision.device.type == "cuda":
        return f"{torch.cuda.get_device_name(precision.device)}, {precision.name}"
    return f"{describe_cpu()}, {threads} threads, {precision.name}"


def _find_peak(precision: Precision, threads: int, cache_dir: str | None) -> float:
    """The peak of a card by its name, else the rate that was measured on this machine."""
    device = precision.device
    if device.type == "cuda":
        known = find_card_peak(torch.cuda.get_device_name(device), precision.name)
        if known:
            return known

    def measure() -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return measure_rate(device, precision.name, seconds=SECONDS)
        finally:
            torch.set_num_threads(before)

    return keep(name_machine(precision, threads), measure, find_cache_folder(cache_dir))
