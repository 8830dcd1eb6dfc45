"""Numbers rounded to whole steps of one scale, with straight-through gradients."""

from __future__ import annotations

import torch
from torch import Tensor


def find_most(bits: int) -> int:
    """The largest whole number of a symmetric range: 127 for 8 bits."""
    return 2 ** (bits - 1) - 1


def find_scale(largest: Tensor, bits: int) -> Tensor:
    """`largest / most`, so that `largest` is the last step; 1 where `largest` is 0."""
    return torch.where(largest > 0, largest / find_most(bits), 1.0)


def to_steps(x: Tensor, scale: Tensor, bits: int) -> Tensor:
    """`clamp(round(x / scale), -most, most)`, still as floats."""
    most = find_most(bits)
    return torch.round(x / scale).clamp(-most, most)


def fake_round(x: Tensor, scale: Tensor, bits: int) -> Tensor:
    """`scale to_steps(x)`, whose gradient is 1 inside the range and 0 outside (Jacob et al., 2018,
    arXiv:1712.05877, sec. 3.1; Bengio et al., 2013, arXiv:1308.3432, sec. 4).
    """
    reach = scale * find_most(bits)
    inside = torch.minimum(torch.maximum(x, -reach), reach)
    return inside + (to_steps(x, scale, bits) * scale - inside).detach()
