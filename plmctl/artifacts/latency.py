"""The time of one row, measured on this machine with weights at random."""

from __future__ import annotations

import copy
import statistics
import time

import torch

from plmctl.artifacts.activations import make_full_batch
from plmctl.models.base import Model
from plmctl.training.randomness import keep_random_state

WARM, TIMED = 2, 9  # passes before the clock runs, and passes whose median counts


def measure_latency(model: Model, lengths: tuple[int, int]) -> float:
    """Milliseconds of a full row through the backbone, on the CPU: the median of some passes.

    Args:
        model: The model without weights; it stays so.
        lengths: Tokens of a row that are read, and tokens that are written.
    """
    cpu = torch.device("cpu")
    with keep_random_state(cpu), torch.no_grad():
        torch.manual_seed(0)
        backbone = copy.deepcopy(model.backbone).to_empty(device=cpu).eval()
        for tensor in (*backbone.parameters(), *backbone.buffers()):
            if tensor.is_floating_point():
                tensor.normal_(std=0.02)
            else:
                tensor.zero_()
        batch, times = make_full_batch(backbone, 1, lengths), []
        for _ in range(WARM + TIMED):
            start = time.perf_counter()
            backbone(batch)
            times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times[WARM:])
