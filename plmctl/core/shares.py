"""Tensors of which several processes have a share each (torch's `DTensor`), known without torch's
modules for them, which take as long to import as torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def is_shared(tensor: Any) -> bool:
    """Whether each of several processes has a share of it."""
    return hasattr(tensor, "placements")


def cuts(placement: Any) -> bool:
    """Whether a placement of a DTensor divides it. torch's `is_shard` leaves out divisions in
    blocks.
    """
    return bool(placement.is_shard()) or hasattr(placement, "split_factor")


def count_blocks(placement: Any) -> int:
    """The blocks of rows that a process has of a tensor, by this placement."""
    return int(getattr(placement, "split_factor", 1))


def local_of(tensor: Any) -> Tensor:
    """The share of this process; a tensor that is not divided itself."""
    return tensor.to_local() if is_shared(tensor) else tensor  # type: ignore[no-any-return]


def whole_of(tensor: Any) -> Tensor:
    """The whole tensor, from the shares of all processes, each of which has to call it."""
    return tensor.full_tensor() if is_shared(tensor) else tensor  # type: ignore[no-any-return]
