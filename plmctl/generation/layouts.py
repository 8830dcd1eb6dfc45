"""The layouts of weights that are fastest on this machine, measured once and kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.machine import describe_cpu
from plmctl.storage.paths import find_cache_folder
from plmctl.storage.rates import keep

SMALL = 1 << 22  # bytes of weights that a cache near the processor holds, whatever their layout
_MOST = 1 << 27  # bytes of weights that are measured
_SIDE = 512  # inputs and outputs of a measured map
_PROMPT = 64  # rows of a measured prompt
_REPEATED = 3  # measurements, of which the fastest counts


@dataclass(frozen=True)
class LayoutPlan:
    """The layouts of a model's linear maps by the rows of their input. Several rows of a decoding
    step always take blocked weights.
    """

    blocked_row: bool  # one row takes blocked weights, else those with inputs in front
    blocked_prompt: bool  # a prompt takes blocked weights, else those of the model


USUAL = LayoutPlan(blocked_row=False, blocked_prompt=False)


def find_plan(size: int) -> LayoutPlan:
    """The fastest plan for linear maps of so many bytes; the usual one for a small model."""
    return USUAL if size <= SMALL else _measure_plan(size.bit_length(), torch.get_num_threads())


@cache
def _measure_plan(bits: int, threads: int) -> LayoutPlan:
    """The plan of models of up to 2^bits bytes: rates of this machine, which are kept."""
    machine = f"{describe_cpu()}, {threads} threads, torch {torch.__version__}"
    folder, size = find_cache_folder(), min(1 << bits, _MOST)

    def gain(rows: int) -> float:
        name = f"{machine}, blocked weights of 2^{bits} bytes over others, {rows} rows"
        return keep(name, partial(measure_gain, rows, size), folder)

    return LayoutPlan(blocked_row=gain(1) > 1, blocked_prompt=gain(_PROMPT) > 1)


def measure_gain(rows: int, size: int) -> float:
    """The time of products with other weights as a multiple of that with blocked ones.

    Args:
        rows: Rows of the input: one meets weights with their inputs in front, more meet plain ones.
        size: Bytes of the weights, which are read one after the other, as in a model.
    """
    count = max(1, size // (4 * _SIDE * _SIDE))
    with torch.inference_mode():
        x = torch.ones(rows, _SIDE)
        weights = [torch.ones(_SIDE, _SIDE) for _ in range(count)]
        plain = _time(F.linear if rows > 1 else torch.mm, x, weights)
        blocked = [torch.ops.mkldnn._reorder_linear_weight(weight, None) for weight in weights]
        return plain / _time(_multiply, x, blocked)


def _multiply(x: Tensor, weight: Tensor) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return y


def _time(
    product: Callable[[Tensor, Tensor], Tensor], x: Tensor, weights: Sequence[Tensor]
) -> float:
    """Seconds of the products with all weights: the fastest of a few passes."""
    fastest = math.inf
    for _ in range(_REPEATED + 1):
        start = time.perf_counter()
        for weight in weights:
            product(x, weight)
        fastest = min(fastest, time.perf_counter() - start)
    return fastest
