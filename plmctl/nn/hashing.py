"""Buckets of vectors: near ones mostly fall into the same (Andoni et al., 2015, arXiv:1509.02897;
Kitaev et al., 2020, arXiv:2001.04451, sec. 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

LEAST_FACTORS = 128  # by rule, a hash of more buckets has two factors


def count_buckets(length: int, chunk: int) -> list[int]:
    """The even factors of the number of buckets for rows of `length` tokens: about `2 length /
    chunk`, so that a bucket fills half of a chunk (arXiv:2001.04451, sec. 2; trax factorises from
    128 on).
    """
    count = 2 * max(1, length // chunk)
    if count <= LEAST_FACTORS:
        return [count]
    first = 2 * round(math.sqrt(count) / 2)
    return [first, 2 * math.ceil(count / first / 2)]


def hash_vectors(vectors: Tensor, factors: Sequence[int], rounds: int, seed: int) -> Tensor:
    """`argmax [x R; -x R]` with R of normal numbers, one for each head and round, the same for all
    rows of the batch; of several factors b1, b2, ...: h1 + b1 h2 + b1 b2 h3 + ...

    Args:
        vectors: [B, H, L, D] of any length.
        factors: Even numbers, whose product is the number of buckets.
        rounds: R hashes with rotations of their own.

    Returns:
        [B, H, R, L] int32
    """
    wide = torch.promote_types(vectors.dtype, torch.float32)
    shape = (vectors.shape[1], vectors.shape[3], rounds, sum(factors) // 2)
    generator = Generator("cpu").manual_seed(seed)
    rotations = torch.randn(shape, generator=generator, dtype=wide, device="cpu")
    with torch.no_grad(), torch.autocast(vectors.device.type, enabled=False):
        x = torch.einsum("bhld,hdrn->bhrln", vectors.to(wide), rotations.to(vectors.device))
        bucket = torch.zeros(x.shape[:-1], dtype=torch.int64, device=x.device)
        times = 1
        for part, factor in zip(x.split([n // 2 for n in factors], -1), factors, strict=True):
            bucket += times * torch.cat([part, -part], -1).argmax(-1)
            times *= factor
    return bucket.int()
