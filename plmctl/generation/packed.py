"""Linear maps in a layout for the few rows of a decoding step, on CPU in fp32.

A matrix product of few rows spends its time on reading the weights. Several rows: oneDNN's blocked
weights, which the library otherwise makes anew at every call (32 rows of GPT-2 with 4 layers of 256
and 8192 tokens, one thread of a Zen 4 core: 6.3 ms a token to 4.3 ms; 4 rows: 2.8 to 1.3). One row:
the weight with its inputs in front (1.5 to 0.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.generation.few_bits import Int4Map, Int8Map
from plmctl.heads.lm import LMHead

_ROOM = 1 << 30  # bytes of weights that are worth a second copy
_TOKENS = 2  # tokens of each row in one step: a token, perhaps with a mask behind it
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

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias

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
        if x.dim() > 2 and x.shape[-2] > _TOKENS:  # the prompt
            return F.linear(x, self.weight, self.bias)
        flat = x.flatten(0, -2)
        if len(flat) > 1:
            y = torch.ops.mkldnn._linear_pointwise(flat, self.blocked, self.bias, "none", [], "")
        else:
            y = (
                flat @ self.transposed
                if self.bias is None
                else torch.addmm(self.bias, flat, self.transposed)
            )
        return y.view(*x.shape[:-1], -1)  # type: ignore[no-any-return]


# the layouts by the bits of a weight
LAYOUTS: dict[str, Callable[[Tensor, Tensor | None], PackedMap]] = {
    "fp32": Packed,
    "int8": Int8Map,
    "int4": Int4Map,
}


@contextmanager
def pack_linear(model: nn.Module, weights: str = "fp32") -> Iterator[None]:
    """Replace the linear maps of `model` inside, and restore them afterwards: by `Packed` ones, if
    that is faster, or by those of fewer bits.

    Raises:
        ConfigError: Weights of fewer bits, but not fp32 on a CPU.
    """
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
    try:
        for part, name, weight, bias in used:
            setattr(part, name, _pack(part, weight, bias, LAYOUTS[weights]))
        yield
    finally:
        for part, name, _, _ in used:
            part.__dict__.pop(name, None)


def _pack(part: nn.Module, weight: Tensor, bias: Tensor | None, layout: Any) -> PackedMap:
    """The packed map, computed once for a module, and again when its weight has changed. A shape
    that no kernel of fewer bits knows stays in fp32.
    """
    key = (layout, id(weight), id(bias), _state(weight))
    known = _packed_maps.get(part)
    if known is not None and known[0] == key:
        return known[1]
    try:
        packed = layout(weight, bias)
    except ValueError:
        packed = Packed(weight, bias)
    _packed_maps[part] = key, packed
    return packed


def _state(weight: Tensor) -> tuple[int, int, int]:
    """A key that changes with the weight: loaded weights, a move between devices, an optimizer's
    step.

    It contains a sum of the numbers, since torch's fused optimizers change them without a new
    version.
    """
    return (
        weight._version,
        weight.data_ptr(),
        int(weight.detach().view(torch.int32).sum(dtype=torch.int64)),
    )
