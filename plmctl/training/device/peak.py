"""The peak speed of this machine, for MFU and for estimates of time."""

from __future__ import annotations

import functools
import time

import torch

from plmctl.core.machine import count_processors
from plmctl.training.device.precision import Precision

TRIES = 4  # measurements, where other programs compute
OWN = 0.75  # least share of the available processor time: with less, others computed
LEAST = 5  # products: of a slow type a single one may take longer than the measurement
# widths of the matrices: wide ones have the full rate of an idle processor; a product of narrow
# ones ends before other programs get their turn
WIDTHS = {"cpu": (256, 512)}
WIDE = (4096,)  # the widths where no others are named
# share of the peak that training reaches: the run itself prints its real share (MFU)
USUAL_SHARES = {"cpu": 0.5, "cuda": 0.3}
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


def peak_flops(precision: Precision) -> float | None:
    """FLOP/s: a card's dense peak by its name, or None; on a CPU the measured rate of a matrix
    product.
    """
    if precision.device.type == "cuda":
        return find_card_peak(torch.cuda.get_device_name(precision.device), precision.name)
    return _measure_once(precision.device, precision.name, torch.get_num_threads())[0]


def is_doubtful(precision: Precision) -> bool:
    """Whether other programs took processor time while `peak_flops` was measured."""
    if precision.device.type == "cuda":
        return False
    return _measure_once(precision.device, precision.name, torch.get_num_threads())[1]


def find_card_peak(name: str, precision: str) -> float | None:
    """The dense peak of a graphics card in this number type, FLOP/s, if it is known."""
    names = [card for card in CARDS if card in name]
    return CARDS[max(names, key=len)][precision == "fp32"] if names else None


def usual_share(device: torch.device) -> float:
    """The share of the peak of a device that training reaches, before anything is measured."""
    return USUAL_SHARES.get(device.type, min(USUAL_SHARES.values()))


def measure_rate(device: torch.device, precision: str, *, seconds: float) -> float:
    """The best rate of a matrix product within so many seconds, FLOP/s, by as many threads as
    torch takes now; measured again while other programs take processor time.
    """
    return _measure_alone(device, precision, seconds)[0]


def _measure_alone(device: torch.device, precision: str, seconds: float) -> tuple[float, bool]:
    """The best rate of up to `TRIES` measurements, until one has the processor to itself; whether
    none had.
    """
    best, threads = 0.0, min(torch.get_num_threads(), count_processors())
    for _ in range(TRIES):
        start, used = time.perf_counter(), time.process_time()
        best = max(best, _measure(device, precision, seconds))
        passed = time.perf_counter() - start
        if device.type != "cpu" or time.process_time() - used >= OWN * threads * passed:
            return best, False
    return best, True


def _measure(device: torch.device, precision: str, seconds: float) -> float:
    """The best rate within so many seconds, of `LEAST` products of a width or more."""
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    widths = WIDTHS.get(device.type, WIDE)
    matrices = [torch.full((n, n), 1e-3, dtype=kind, device=device) for n in widths]
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    best, end, rounds = 0.0, time.perf_counter() + seconds, 0
    with torch.no_grad():
        while time.perf_counter() < end or rounds < LEAST:
            rounds += 1
            for matrix in matrices:
                wait()
                start = time.perf_counter()
                matrix @ matrix
                wait()
                best = max(best, 2 * len(matrix) ** 3 / (time.perf_counter() - start))
    return best


@functools.cache  # a study of many arms, or a sweep, measures once
def _measure_once(device: torch.device, precision: str, threads: int) -> tuple[float, bool]:
    """The rate, and whether it is doubtful; `threads` is only a key of the cache."""
    return _measure_alone(device, precision, seconds=0.05)
