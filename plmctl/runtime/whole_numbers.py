"""A model that computes with whole numbers, whose ranges training has found.

Its graph has two operators of our own, which each library translates:

    plmctl::widen(q, scale) = scale q                             of weights, int8 -> fp32
    plmctl::round_to(x, scale, most) = scale clamp(round(x / scale), -most, most)   of inputs
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from plmctl.core.machine import cpu_sums_int8
from plmctl.models.base import Model
from plmctl.runtime.base import Program

SAFE = 7  # bits of a weight whose sums of products do not overflow 16 bits


@torch.library.custom_op("plmctl::widen", mutates_args=())
def widen(q: Tensor, scale: float) -> Tensor:
    """Whole numbers as multiples of a scale."""
    return q.float() * scale


@widen.register_fake
def _(q: Tensor, scale: float) -> Tensor:
    return torch.empty_like(q, dtype=torch.float32)


@torch.library.custom_op("plmctl::round_to", mutates_args=())
def round_to(x: Tensor, scale: float, most: int) -> Tensor:
    """The nearest multiple of a scale, at most `most` times it."""
    return torch.round(x / scale).clamp(-most, most) * scale


@round_to.register_fake
def _(x: Tensor, scale: float, most: int) -> Tensor:
    return torch.empty_like(x)


@dataclass(frozen=True)
class TrainedRanges:
    """The ranges of a model that was trained with rounded weights and inputs.

    Args:
        inputs: {weight of a linear map: largest absolute value of its inputs}.
    """

    bits: int
    weights: Sequence[str]
    inputs: Mapping[str, float]


class _Widened(nn.Module):
    """A weight of whole numbers, as its module reads it."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, q: Tensor) -> Tensor:
        return widen(q, self.scale)

    def right_inverse(self, q: Tensor) -> Tensor:
        """The same whole numbers."""
        return q


def round_model(model: Model, ranges: TrainedRanges) -> Model:
    """A copy of a model whose weights are int8 tensors, and whose maps round their inputs.

    `q = round(W / s)`, `s = max|W| / most`, and `most = 2^(bits - 1) - 1`. A processor that could
    overflow its sums has weights of 7 bits.
    """
    rounded = copy.deepcopy(model)
    modules = dict(rounded.named_modules())
    bits = ranges.bits if cpu_sums_int8() else min(SAFE, ranges.bits)
    whole: dict[int, tuple[nn.Parameter, float]] = {}  # a tied weight is rounded once
    for name in ranges.weights:
        if (part := modules.get(name.rpartition(".")[0])) is None:
            continue  # a head of training alone
        weight: Any = part.weight
        if id(weight) not in whole:
            scale = float(weight.detach().abs().max()) / (2 ** (bits - 1) - 1) or 1.0
            q = torch.round(weight.detach() / scale).to(torch.int8)
            whole[id(weight)] = nn.Parameter(q, requires_grad=False), scale
        part.weight, scale = whole[id(weight)]
        parametrize.register_parametrization(part, "weight", _Widened(scale), unsafe=True)
        if ranges.inputs.get(name):
            most = 2 ** (ranges.bits - 1) - 1
            scale = ranges.inputs[name] / most
            part.register_forward_pre_hook(partial(_round_input, scale, most))
    return rounded


def use_ranges(program: Program) -> Program | None:
    """The program with the whole numbers of its training; None where it found no ranges."""
    ranges = program.model.find_ranges and program.model.find_ranges()
    if ranges is None:
        return None
    return Program(round_model(program.model, ranges), program.compute)


def _round_input(scale: float, most: int, module: nn.Module, given: Sequence[Any]) -> Any:
    return (round_to(given[0], scale, most), *given[1:])
