"""The peak speed of this machine, for MFU."""

from __future__ import annotations

import functools
import time

import torch

from plmctl.training.device.precision import Precision

# dense bf16/fp16 tensor-core peaks, FLOP/s, from NVIDIA's data sheets; the longest matching name
# counts
CARDS = {
    "A100": 312e12,
    "H100": 989e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "L4": 121e12,
    "L40S": 362e12,
    "A10": 125e12,
    "V100": 125e12,
}


def peak_flops(precision: Precision) -> float | None:
    """FLOP/s: the card's dense 16-bit peak by its name, or None; on a CPU the measured rate of a
    matrix product.
    """
    if precision.device.type == "cuda":
        names = [name for name in CARDS if name in torch.cuda.get_device_name(precision.device)]
        return CARDS[max(names, key=len)] if names else None
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision.name, torch.float32)
    return _measure_rate(precision.device, kind, torch.get_num_threads())


@functools.cache  # a study of many arms, or a sweep, measures once
def _measure_rate(device: torch.device, kind: torch.dtype, threads: int) -> float:
    """The best rate within 0.05 s; `threads` is only a key of the cache."""
    width = 512  # large enough for the full rate, small enough for many products
    matrix = torch.full((width, width), 1e-3, dtype=kind, device=device)
    best, end = float("inf"), time.perf_counter() + 0.05
    with torch.no_grad():
        while time.perf_counter() < end:
            start = time.perf_counter()
            matrix @ matrix
            best = min(best, time.perf_counter() - start)
    return 2 * width**3 / best
