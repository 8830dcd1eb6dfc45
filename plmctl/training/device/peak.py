"""The peak speed of this machine, for MFU and for estimates of time."""

from __future__ import annotations

import functools
import math
import time

import torch

from plmctl.core.machine import count_processors, describe_cpu
from plmctl.storage.paths import find_cache_folder
from plmctl.storage.rates import keep
from plmctl.training.device.precision import Precision

SECONDS = 0.1  # seconds of products that are measured
LEAST = 5  # products: of a slow type a single one may take longer than the measurement
SPELL = 0.2  # seconds in which the own share of the processors is measured
ALONE = 0.75  # least share of the processors: with less, others compute
WIDTHS = {"cpu": 512}  # {device: width of the matrices}
WIDE = 4096  # their width elsewhere
# share of the peak that training reaches: the run itself prints its real share (MFU)
USUAL_SHARES = {"cpu": 0.5, "cuda": 0.3}
# width of a model that a processor trains at half of that share; single numbers grow in number
# with the width, products of matrices with its square
HALVED = {"cpu": 64}
# {device: (share, width)} in fp32, whose products take longer, while other work takes as long
PLAIN = {"cpu": (0.67, 16)}
# peaks of graphics cards, FLOP/s, from NVIDIA's data sheets: of dense bf16 and fp16 products on
# tensor cores, and of fp32 ones without TF32; the longest matching name counts
CARDS = {
    "A100": (312e12, 19.5e12),
    "H100": (989e12, 67e12),
    "H200": (989e12, 67e12),
    "H100 PCIe": (756e12, 51e12),
    "L4": (121e12, 30.3e12),
    "L40S": (362e12, 91.6e12),
    "A10": (125e12, 31.2e12),
    "V100": (125e12, 15.7e12),
}


def find_peak(
    precision: Precision, threads: int | None = None, cache_dir: str | None = None
) -> float:
    """FLOP/s: a card's dense peak by its name, elsewhere the rate of a matrix product. It is
    measured once and kept in the cache folder. On a CPU it is `threads` times that of one thread.

    Args:
        threads: The threads of a process on a CPU; None: torch's.
        cache_dir: The folder of measured rates; None: the user's cache folder.
    """
    device = precision.device
    if device.type == "cuda":
        known = find_card_peak(torch.cuda.get_device_name(device), precision.name)
        if known:
            return known
    rate = keep(
        name_machine(precision),
        lambda: measure_rate(device, precision.name),
        find_cache_folder(cache_dir),
    )
    return rate * (threads or torch.get_num_threads()) if device.type == "cpu" else rate


def name_machine(precision: Precision) -> str:
    """All that decides the measured rate: "<processor>, torch 2.13.0, one thread, fp32"."""
    library = f"torch {torch.__version__}"
    if precision.device.type == "cuda":
        return f"{torch.cuda.get_device_name(precision.device)}, {library}, {precision.name}"
    return f"{describe_cpu()}, {library}, one thread, {precision.name}"


def find_card_peak(name: str, precision: str) -> float | None:
    """The dense peak of a graphics card in this number type, FLOP/s, if it is known."""
    names = [card for card in CARDS if card in name]
    return CARDS[max(names, key=len)][precision == "fp32"] if names else None


def usual_share(precision: Precision, width: float = math.inf) -> float:
    """The share of the peak of a device that training reaches, before anything is measured.

        share = usual share / (1 + 64 / width), on a processor; 16 instead of 64 in fp32

    Args:
        width: The width of the model; by default one without bounds.
    """
    kind = precision.device.type
    usual = USUAL_SHARES.get(kind, min(USUAL_SHARES.values())), HALVED.get(kind, 0)
    share, halved = PLAIN.get(kind, usual) if precision.name == "fp32" else usual
    return share / (1 + halved / width)


def find_rate(
    precision: Precision,
    width: float = math.inf,
    threads: int | None = None,
    cache_dir: str | None = None,
) -> float:
    """FLOP/s that training reaches: the usual share of the peak. Arguments as of `find_peak`.

    Args:
        width: The width of the model; by default one without bounds.
        threads: The threads of a process on a CPU; None: torch's.
        cache_dir: The folder of measured rates; None: the user's cache folder.
    """
    return usual_share(precision, width) * find_peak(precision, threads, cache_dir)


def measure_rate(device: torch.device, precision: str, *, seconds: float = SECONDS) -> float:
    """The best rate of a matrix product, FLOP/s, by `LEAST` or more of them.

    A CPU is measured by one thread and its processor time: the time that other programs take is
    none, and no thread waits for others.
    """
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    width = WIDTHS.get(device.type, WIDE)
    matrix = torch.full((width, width), 1e-3, dtype=kind, device=device)
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    now = time.thread_time if device.type == "cpu" else time.perf_counter
    best, passed, products, before = math.inf, 0.0, 0, torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            while passed < seconds or products < LEAST:
                wait()
                start = now()
                matrix @ matrix
                wait()
                took = now() - start
                best, passed, products = min(best, took), passed + took, products + 1
    finally:
        torch.set_num_threads(before)
    return 2 * width**3 / best


@functools.cache  # a study of many arms, or a sweep, measures once
def find_own_share(device: torch.device) -> float:
    """The share of the processors' time that this process has now while it computes with all of
    its threads; 1 where others take next to none, and on other devices.
    """
    if device.type != "cpu":
        return 1.0
    threads = min(torch.get_num_threads(), count_processors())
    matrix = torch.full((WIDTHS["cpu"],) * 2, 1e-3)
    start, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - start < SPELL:
        matrix @ matrix
    passed = time.perf_counter() - start
    share = (time.process_time() - used) / (threads * passed)
    return share if share < ALONE else 1.0
