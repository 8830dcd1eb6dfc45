"""How fast this machine trains: measured once and kept, so that all runs see the same number."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import torch

from plmctl.config.groups import Train
from plmctl.core.machine import describe_cpu
from plmctl.storage.atomic import write_json
from plmctl.storage.gate import admit
from plmctl.storage.paths import find_cache_folder
from plmctl.storage.reading import parse_json
from plmctl.training.device.peak import find_card_peak, measure_rate, usual_share
from plmctl.training.device.precision import Precision, choose
from plmctl.training.processes.threads import count_threads
from plmctl.training.processes.world import device_of, environment

FILE = "speed.json"  # in the cache folder: {machine: FLOP/s of a matrix product}
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


def keep(name: str, measure: Callable[[], float], folder: Path) -> float:
    """The rate that is kept under `name`; the first time, what `measure` returns."""
    file = folder / FILE
    if name not in _read(file):
        rate = float(f"{measure():.3g}")
        with contextlib.suppress(OSError):  # a cache that cannot be written to keeps nothing
            admit(folder).mkdir(parents=True, exist_ok=True)
            write_json(file, {name: rate, **_read(file)})  # the first of two processes counts
        return _read(file).get(name, rate)
    return _read(file)[name]


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


def _read(file: Path) -> dict[str, float]:
    """{machine: rate} of the file; damaged entries are left out."""
    try:
        kept = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    items = kept.items() if isinstance(kept, dict) else ()
    return {
        name: float(rate)
        for name, rate in items
        if isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate > 0
    }
