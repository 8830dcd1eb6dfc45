"""The buckets into which attention by hashing sorts the tokens of a row (Kitaev et al., 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from plmctl.analysis.measure import Measure
from plmctl.analysis.sample import batch_held_out
from plmctl.analysis.stacks import find_readers, list_cells
from plmctl.artifacts.loading import Loaded
from plmctl.nn.cells.lsh_attention import LSHAttention


@dataclass(frozen=True)
class Hashed:
    """The buckets of one layer.

    Args:
        layer: The layer, from 1.
        tokens: The tokens of a bucket, on average.
        first: [H, R, T] the bucket of each token of the first row, by head and round.
        largest: tokens of the largest bucket of a round, the mean over rows, heads and rounds.
        empty: the share of buckets without tokens.
        evenness: The entropy of the shares of a row's tokens in n buckets, divided by ln n, by
            head. It is 1 if all buckets are equally large, 0 if one has all tokens.
    """

    layer: int
    buckets: int
    tokens: float
    first: Tensor
    largest: float
    empty: float
    evenness: list[float]


@dataclass(frozen=True)
class TokenBuckets(Measure):
    """The buckets of tokens in the layers that hash.

    Args:
        layers: The first layer first.
        tokens: The tokens of the first row.
        about: The text that was read.
    """

    name: ClassVar[str] = "buckets"
    layers: list[Hashed]
    tokens: list[str]
    about: str

    @classmethod
    @torch.inference_mode()
    def of(cls, opened: Loaded) -> Self | None:
        """Measure a model; None also where rows are too short for hashing."""
        backbone = opened.model.backbone
        if "buckets" not in backbone.records:
            return None
        batch, about = batch_held_out(opened)
        seq = batch.seqs.get("target") or batch.text
        filled = seq.real.any(1)  # the last rows of a batch may be empty
        real = seq.real[filled]
        recorded = opened.model(batch, record=frozenset({"buckets"})).recorded["buckets"]
        hashing = [
            (layer, cell)
            for part in find_readers(backbone).values()
            for layer, cell in list_cells(part.stack)
            if isinstance(cell, LSHAttention)
        ]
        found = []
        # two stacks record the last one, the decoder
        own = hashing[len(hashing) - len(recorded) :]
        for (layer, cell), buckets in zip(own, recorded, strict=True):
            count = math.prod(cell.find_factors(seq.ids.shape[1]))
            found.append(_measure(layer, count, buckets[filled], real))
        tokens = opened.tokenizer.show(seq.ids[filled][0][real[0]].tolist())
        return cls(found, tokens, about) if found else None


def _measure(layer: int, count: int, buckets: Tensor, real: Tensor) -> Hashed:
    """From `buckets [B, H, R, T]` of the tokens that are `real [B, T]`."""
    sizes = count_sizes(buckets, real, count)
    shares = sizes / sizes.sum(-1, keepdim=True)
    even = torch.special.entr(shares).sum(-1) / math.log(count)  # [B, H, R]
    return Hashed(
        layer,
        count,
        float(sizes.mean()),
        buckets[0][..., real[0]],
        float(sizes.amax(-1).mean()),
        float((sizes == 0).double().mean()),
        even.mean((0, 2)).tolist(),
    )


def count_sizes(buckets: Tensor, real: Tensor, count: int) -> Tensor:
    """[B, H, R, n] the tokens of each of `count` buckets, from `buckets [B, H, R, T]`."""
    ones = real[:, None, None].double().expand(buckets.shape)
    sizes = ones.new_zeros(*buckets.shape[:3], count)
    return sizes.scatter_add(-1, buckets.long(), ones)
