"""Linear maps in a layout for the few rows of a decoding step, on CPU in fp32.

A matrix product of few rows spends its time on reading the weights. Several rows take oneDNN's
blocked weights, which the library otherwise makes anew at every call. With them, 32 rows of GPT-2
with 4 layers of 256 take 4.3 ms a token, not 6.3 (one thread, Zen 4).
One row takes them, or the weight with its inputs in front. The rows of a prompt take them, or the
weight as it is. layouts.py measures which are faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.machine import cpu_sums_int8
from plmctl.generation.few_bits import Int4Map, Int8Map, Int8Product
from plmctl.generation.layouts import USUAL, LayoutPlan, find_plan
from plmctl.heads.lm import LMHead

_ROOM = 1 << 30  # bytes of weights that are worth a second copy
_TOKENS = 2  # tokens of each row in one step: a token, perhaps with a mask behind it
_SEEN = 1024  # weights that are compared one by one with those of the last call
_packed_maps: WeakKeyDictionary[nn.Module, tuple[Any, PackedMap]] = WeakKeyDictionary()


class PackedMap(Protocol):
    """A linear map in a layout of its own."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """`x weight^T + bias`, perhaps rounded."""
        ...


class Packed:
    """`x weight^T + bias` for x `[B, T, W]` or `[B, W]`, in the layout that suits the number of
    rows.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, plan: LayoutPlan = USUAL) -> None:
        self.weight, self.bias, self.plan = weight, bias, plan

    @cached_property
    def transposed(self) -> Tensor:
        """The weight with its inputs first, for one row."""
        return self.weight.detach().t().contiguous()

    @cached_property
    def blocked(self) -> Tensor:
        """The weight in oneDNN's layout, for several rows."""
        weight = self.weight.detach()
        return cast(Tensor, torch.ops.mkldnn._reorder_linear_weight(weight, None))

    def __call__(self, x: Tensor) -> Tensor:
        # a prompt
        if not self.plan.blocked_prompt and x.dim() > 2 and x.shape[-2] > _TOKENS:
            return F.linear(x, self.weight, self.bias)
        flat = x.flatten(0, -2)
        if len(flat) > 1 or self.plan.blocked_row:
            y = torch.ops.mkldnn._linear_pointwise(flat, self.blocked, self.bias, "none", [], "")
        else:
            y = (
                flat @ self.transposed
                if self.bias is None
                else torch.addmm(self.bias, flat, self.transposed)
            )
        return y.view(*x.shape[:-1], -1)  # type: ignore[no-any-return]


# the layouts of weights with fewer bits
LAYOUTS: dict[str, Callable[[Tensor, Tensor | None], PackedMap]] = {
    "int8": Int8Map,
    "int4": Int4Map,
    "w8a8": Int8Product,
}


@contextmanager
def pack_linear(model: nn.Module, weights: str = "fp32") -> Iterator[None]:
    """Replace the linear maps of `model` inside, and restore them afterwards: by `Packed` ones, if
    that is faster, or by those of fewer bits. Inside of another call for the same model it does
    nothing, so that who writes for long looks at the weights once.

    Raises:
        ConfigError: Weights of fewer bits, but not fp32 on a CPU, or not on this one.
    """
    if weights == "w8a8" and not cpu_sums_int8():
        allowed = "int8: this processor lacks VNNI, without which sums of products overflow"
        raise ConfigError("weights", weights, allowed, fix="weights=int8")
    if any("forward" in vars(part) for part in model.modules() if type(part) is nn.Linear):
        yield
        return
    maps: list[tuple[nn.Module, str, Tensor, Tensor | None]]
    maps = [
        (part, "forward", part.weight, part.bias)
        for part in model.modules()
        if type(part) is nn.Linear
    ]
    maps += [
        (part, "product", part.table, part.bias)
        for part in model.modules()
        if isinstance(part, LMHead)
    ]
    fitting = all(
        weight.device.type == "cpu" and weight.dtype == torch.float32 and not weight.is_inference()
        for _, _, weight, _ in maps
    )
    rounded = weights != "fp32"
    size = sum(weight.numel() * weight.element_size() for _, _, weight, _ in maps)
    small = size <= _ROOM or rounded
    known = torch.backends.mkldnn.is_available() and hasattr(
        torch.ops.mkldnn, "_reorder_linear_weight"
    )
    # states are bf16 under autocast, which blocked fp32 weights cannot multiply
    cast = torch.is_autocast_enabled("cpu")
    used = maps if fitting and small and (known or rounded) and not cast else []
    if rounded and not used:
        allowed = "fp32: fewer bits are of models in fp32 on a CPU"
        raise ConfigError("weights", weights, allowed, fix="weights=fp32")
    plan = find_plan(size) if used and known else USUAL
    try:
        for part, name, weight, bias in used:
            setattr(part, name, _pack(part, weight, bias, LAYOUTS.get(weights), plan))
        yield
    finally:
        for part, name, _, _ in used:
            part.__dict__.pop(name, None)


def _pack(
    part: nn.Module, weight: Tensor, bias: Tensor | None, fewer: Any, plan: LayoutPlan
) -> PackedMap:
    """The packed map, computed once for a module, and again when its weight has changed. A shape
    that no kernel of fewer bits knows stays in fp32.
    """
    key = (fewer, plan, id(weight), id(bias), _state(weight))
    known = _packed_maps.get(part)
    if known is not None and known[0] == key:
        return known[1]
    packed: PackedMap = Packed(weight, bias, plan)
    if fewer is not None:
        with suppress(ValueError):
            packed = fewer(weight, bias)
    _packed_maps[part] = key, packed
    return packed


def _state(weight: Tensor) -> tuple[int, int, int, bytes]:
    """A key that changes with the weight: loaded weights, a move between devices, an optimizer's
    step.

    It contains a sum of all numbers, and some of them one by one. Fused optimizers of torch leave
    the version as it is, and changes of `weight.data` do, too. Words of 64 bits are added, two
    numbers at once, so that the sum takes the time of reading them.
    """
    flat = weight.detach().contiguous().view(-1)
    pairs = flat.numel() % 2 == 0 and flat.storage_offset() % 2 == 0
    whole = flat.view(torch.int64 if pairs else torch.int32).sum(dtype=torch.int64)
    # a copy: an array would hold on to memory that processes that share a weight give back
    some = flat[:: max(1, flat.numel() // _SEEN)].clone().numpy().tobytes()
    return weight._version, weight.data_ptr(), int(whole), some
