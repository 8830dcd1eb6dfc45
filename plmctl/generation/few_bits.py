"""Linear maps with weights of 8 or 4 bits, for the few rows of a decoding step on a CPU.

A step of one row reads all weights once, so that its time is that of their bytes. Inputs are
rounded to bf16, as the kernels of PyTorch need them, or to 8 bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

GROUPS = (64, 32)  # inputs with a scale and a zero of their own, of 4-bit weights
_OUTPUTS = 16  # the kernel computes so many at once
_TOP, _SHIFT, _LEAST = 127, 128, 1e-12  # the largest number, the shift, the least scale
LEVELS = 15  # steps between the 16 numbers of 4 bits


class Int8Map:
    """`y = s (Q x) + b` with `Q = round(W / s)` and a scale s for each output, `s = max|W| / 127`
    (symmetric; Jacob et al., 2018, arXiv:1712.05877, without a zero point).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        scale = weight.detach().abs().amax(1).clamp(min=1e-12) / 127
        self.rounded = (weight.detach() / scale[:, None]).round().to(torch.int8)
        self.scale = scale.bfloat16()

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2).bfloat16()
        y = torch._weight_int8pack_mm(flat, self.rounded, self.scale)
        return _finish(y, x, self.bias)

    @property
    def rebuilt(self) -> Tensor:
        """[out, in] the weight that the map has."""
        return self.rounded.float() * self.scale.float()[:, None]


class Int8Product:
    """`y = t s (Q q) + b` with the Q and s of `Int8Map`, and for each row of x a scale `t = max|x|
    / 127`, `q = round(x / t)` (dynamic quantisation by token; Dettmers et al., 2022,
    arXiv:2208.07339, sec. 2.1.1).

    Sums of whole numbers are exact: a row is the same whatever others are computed with it. Many
    rows are faster, too, where the processor has units for such sums (`cpu_sums_int8`).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.scale = weight.detach().abs().amax(1).clamp(min=_LEAST) / _TOP
        rounded = (weight.detach() / self.scale[:, None]).round().to(torch.int8)
        self.zero = torch.zeros(len(weight), dtype=torch.int32)
        self.packed = torch.ops.onednn.qlinear_prepack(rounded, None)

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        # vector_norm(inf) and a cast to uint8 take many times as long
        scale = flat.abs().amax(-1, keepdim=True).clamp_(min=_LEAST).mul_(1 / _TOP)
        rounded = (flat / scale).round_().to(torch.int8)
        # the kernel multiplies numbers from 0 to 255, and subtracts the shift: 128 more
        shifted = rounded.view(torch.uint8).bitwise_xor_(_SHIFT)
        kernel = torch.ops.onednn.qlinear_pointwise
        how: Any = (None, 1.0, 0, torch.float32, "none", [], "")
        y = kernel(shifted, 1.0, _SHIFT, self.packed, self.scale, self.zero, *how)
        y = y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale)
        return y.view(*x.shape[:-1], -1)  # type: ignore[no-any-return]


class Int4Map:
    """`y = W' x + b`, where each group of inputs has 16 levels between its least and its largest
    weight: `w' = (q - 8) s + z`.

    Raises:
        ValueError: The kernel does not fit a weight of this shape.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        outputs, inputs = weight.shape
        group = next((size for size in GROUPS if inputs % size == 0), 0)
        if not group:
            raise ValueError(f"{outputs} x {inputs}")
        self.weight, self.bias, self.group = weight, bias, group
        more = -outputs % _OUTPUTS  # outputs that nobody reads
        parts = F.pad(weight.detach(), (0, 0, 0, more)).reshape(outputs + more, -1, group)
        least, most = parts.amin(-1), parts.amax(-1)
        scale = ((most - least) / LEVELS).clamp(min=1e-12)
        levels = ((parts - least[..., None]) / scale[..., None]).round().clamp(0, LEVELS)
        pair = torch.stack([scale, least + 8 * scale], -1)  # [out, groups, 2]
        self.pair = pair.transpose(0, 1).contiguous().bfloat16()
        whole = levels.reshape(-1, inputs).to(torch.int32)
        self.levels = levels[:outputs].to(torch.uint8)
        self.packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(whole, 1)

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2).bfloat16()
        mm = torch.ops.aten._weight_int4pack_mm_for_cpu
        y = mm(flat, self.packed, self.group, self.pair)[:, : len(self.weight)]
        return _finish(y, x, self.bias)

    @property
    def rebuilt(self) -> Tensor:
        """[out, in] the weight that the map has."""
        scale, zero = self.pair.float().transpose(0, 1)[: len(self.weight)].unbind(-1)
        return ((self.levels.float() - 8) * scale[..., None] + zero[..., None]).reshape(
            self.weight.shape
        )


def _finish(y: Tensor, x: Tensor, bias: Tensor | None) -> Tensor:
    """The numbers of a kernel in the type and shape of the input, with the bias."""
    y = y.to(x.dtype) if bias is None else bias + y  # in fp32, the wider type
    return y.view(*x.shape[:-1], -1)
