"""Weights of a checkpoint in few bits each, and how much that saves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from plmctl.core.errors import UsageError
from plmctl.storage.packed import is_packed, pack_arrays, unpack_arrays

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

    Raises:
        UsageError: Groups of this size end with the rows of no matrix.
    """
    if bits is None:
        return keep(tensors)
    floats = {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}
    arrays = {name: tensor.numpy() for name, tensor in floats.items()}
    crossing = _describe_crossing(arrays, group) if group else ""
    packed = pack_arrays(arrays, bits=bits, group=group)
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
    return found, f"{line}; largest relative error {error[0]:.3g} in {error[1]}{crossing}"


def _describe_crossing(arrays: Mapping[str, np.ndarray], group: int) -> str:
    """A remark on matrices with groups that go on in the next row."""
    rows = [math.prod(own.shape[1:]) for own in arrays.values() if is_packed(own)]
    crossing = sum(size % group > 0 for size in rows)
    if not crossing:
        return ""
    if crossing == len(rows):
        sizes = ", ".join(map(str, sorted(set(rows))))
        best = max((2**n for n in range(1, 8)), key=lambda g: (sum(r % g == 0 for r in rows), g))
        what = f"--group {group} divides the rows of no matrix, which have {sizes} weights"
        raise UsageError(f"{what}\n  fix: --group {best}")
    return f"; groups of {group} go on in the next row in {crossing} of {len(rows)} matrices"
