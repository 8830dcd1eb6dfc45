"""Weights of a checkpoint in few bits each, and how much that saves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from plmctl.storage.packed import pack_arrays, unpack_arrays

# tensors of a model -> those of its file, and a remark
Pack = Callable[[Mapping[str, Tensor]], tuple[dict[str, Tensor], str]]


def keep(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """The tensors as they are."""
    return dict(tensors), ""


def pack(
    bits: int | None, group: int, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], str]:
    """The tensors in `bits` bits each, and a remark with bytes and the error.

    The bytes count everything: codes, codebooks or scales, masks, embeddings, and what stays in
    fp32. The error is `|w - w'| / |w|`, the largest of all matrices, in the L2 norm.

    Args:
        bits: Bits of a weight; None: as they are.
        group: Weights that share a scale; 0: a codebook for each matrix.
        tensors: The weights of a model.
    """
    if bits is None:
        return keep(tensors)
    floats = {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}
    packed = pack_arrays({n: t.numpy() for n, t in floats.items()}, bits=bits, group=group)
    found = {name: torch.from_numpy(array) for name, array in packed.items()}
    before, after = (sum(t.nbytes for t in each.values()) for each in (floats, found))
    again = unpack_arrays(packed)
    error = max(
        (float((t - torch.from_numpy(again[n])).norm() / t.norm().clamp(min=1e-30)), n)
        for n, t in floats.items()
        if t.is_floating_point()
    )
    line = (
        f", {after / 1e6:.2f} MB instead of {before / 1e6:.2f} MB in fp32 (1/{before / after:.1f})"
    )
    return found, f"{line}; largest relative error {error[0]:.3g} in {error[1]}"
