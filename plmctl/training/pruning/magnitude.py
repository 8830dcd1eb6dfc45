"""Magnitude pruning: the weights nearest to 0 become 0 (Han et al., 2015; Zhu and Gupta, 2017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate, Rate
from plmctl.training.pruning.base import Pruning, Scope, find_weights, keep_largest
from plmctl.training.stabilisers.base import Beginning


@part_of("pruning")
class Magnitude(Pruning):
    """`W <- W M`, M = 0 at the share `sparsity` of the weights of layers with the smallest |W|
    (Han et al., 2015, arXiv:1506.02626; Zhu and Gupta, 2017, arXiv:1710.01878).

    Pruned weights stay 0: their gradients are 0, and each update is followed by the mask.

    Args:
        scope: The smallest weights of each `matrix`, or of the whole `model`.
        only: Globs over names of matrices; none: all linear maps in layers.
    """

    def __init__(
        self,
        *,
        sparsity: DropoutRate,
        begin_at: Rate,
        end_at: Rate,
        every: Count,
        scope: Scope,
        only: Sequence[str] = (),
    ) -> None:
        super().__init__(sparsity=sparsity, begin_at=begin_at, end_at=end_at, every=every)
        self.scope: Scope = scope
        self.only = only

    def begin(self, given: Beginning) -> None:
        weights = find_weights(given.model, self.only)
        whole = {n: torch.ones_like(w, dtype=torch.bool) for n, w in weights.items()}
        self.cover(weights, whole)

    def choose(self, weights: Mapping[str, Tensor], pruned: float) -> None:
        sizes = {name: weight.abs() for name, weight in weights.items()}
        for name, mask in keep_largest(sizes, pruned, self.scope).items():
            self.masks.of(name).copy_(mask)
