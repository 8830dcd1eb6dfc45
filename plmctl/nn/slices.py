"""Functions of single tokens, computed for a few tokens of each row at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from plmctl.core.graphs import outside_graphs


@outside_graphs  # a compiled graph cannot reset the generators of the CPU
def run_in_slices(function: Callable[[Tensor], Tensor], x: Tensor, size: int) -> Tensor:
    """`function(x [B, T, W])` from slices [B, size, W], side by side.

    Nothing inside of a slice is stored. It runs again in the backward pass, so at no time more than
    one slice has activations (Kitaev et al., 2020, arXiv:2001.04451, sec. 3).
    """
    slices = x.split(size, 1)
    if len(slices) == 1 or not torch.is_grad_enabled():
        return torch.cat([function(part) for part in slices], 1)
    return torch.cat([checkpoint(function, part, use_reentrant=False) for part in slices], 1)
